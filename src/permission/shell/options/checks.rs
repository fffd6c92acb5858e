//! Programs that check, format, build and test the code of a project, and commits. Sources: the
//! manuals of GNU make 4.4, `ESLint` 9, `TypeScript` 5.6, Prettier 3, mypy 1.13, Ruff 0.8, Black 24,
//! Flake8 7, Pylint 3, Pyright 1.1, Go 1.22, golangci-lint 1.62, cargo 1.95, cargo-nextest 0.9,
//! `CMake` 3.31, Ninja 1.12, Meson 1.6, Maven 3.9, Gradle 8, .NET 9, `RSpec` 3, `RuboCop` 1, `PHPUnit` 11,
//! Mix 1.17, Deno 2, Bun 1.1, Swift 6 and git 2.47.
//!
//! Left out: options that load code or settings from a named file (`-f`, `-I`, `--eval` of make,
//! `-c` and `--rulesdir` of eslint, `--plugin`, `--config-file`), that run a named program
//! (`-toolexec`, `--python-executable`), that write a named file (`--output-file`, `--outDir`,
//! `--junit-xml`), that change the checked files (`--fix`, `--write`, `-i`), and that install
//! something. A command with one of them is judged like one of an unknown program.

use super::Operands::{Data, Nothing, Sources, Tokens, Versions};
use super::projects::{PYTEST, RUNNER};
use super::{FILES, Operands, OptionSyntax, Spec, configured, reads, spec};

/// A program whose words after `--` are options of another program, none of which is known.
pub(super) const fn closed(
    words: &'static [&'static str],
    operands: Operands,
    options: &'static [&'static str],
) -> Spec {
    Spec { after: Some(&NO_MORE), ..spec(words, operands, options) }
}

/// A program with one option in each word.
pub(super) const fn whole(
    words: &'static [&'static str],
    operands: Operands,
    options: &'static [&'static str],
) -> Spec {
    Spec { style: OptionSyntax::Whole, ..closed(words, operands, options) }
}

/// A program that reads its arguments with argparse.
pub(super) const fn argparse(
    words: &'static [&'static str],
    operands: Operands,
    options: &'static [&'static str],
) -> Spec {
    Spec { style: OptionSyntax::Argparse, ..spec(words, operands, options) }
}

/// A test program of JavaScript.
const fn runner(words: &'static [&'static str], options: &'static [&'static str]) -> Spec {
    Spec { style: OptionSyntax::Whole, ..spec(words, FILES, options) }
}

/// pytest, with the words that start it.
const fn pytest(words: &'static [&'static str]) -> Spec {
    argparse(words, FILES, &[PYTEST])
}

static NO_MORE: Spec = spec(&[], Nothing, &[]);

/// Options of clippy after `--`.
static LINTS: Spec =
    spec(&[], Nothing, &["-D: -A: -W: -F: --deny: --allow: --warn: --forbid: --cap-lints:"]);

const ESLINT: &str = "\
    --quiet --color --no-color --no-inline-config --report-unused-disable-directives \
    --no-error-on-unmatched-pattern --no-warn-ignored --stats --exit-on-fatal-error --cache \
    --debug -h --help -v --version --ext: --max-warnings: -f:word --format:word --env-info";
const TSC: &str = "\
    --noEmit --strict --skipLibCheck --listFiles --listFilesOnly --explainFiles --traceResolution \
    --noErrorTruncation --esModuleInterop --allowJs --checkJs --resolveJsonModule --noImplicitAny \
    --noUnusedLocals --noUnusedParameters --noImplicitReturns --noFallthroughCasesInSwitch \
    --noUncheckedIndexedAccess --exactOptionalPropertyTypes --isolatedModules --strictNullChecks \
    --extendedDiagnostics --diagnostics --showConfig -v --version -h --help --all --pretty: \
    --target: -t: --module: -m: --moduleResolution: --jsx: --lib: -p:path --project:path";
const PRETTIER: &str = "\
    -c --check -l --list-different -u --ignore-unknown --no-color --no-config --no-editorconfig \
    --no-error-on-unmatched-pattern --single-quote --no-semi --use-tabs --version -v --help -h \
    --log-level: --loglevel: --parser:word --tab-width: --print-width: --trailing-comma:";
const MYPY: &str = "\
    -v --verbose -V --version -h --help --strict --ignore-missing-imports --no-incremental \
    --pretty --no-pretty --show-error-codes --hide-error-codes --show-error-context \
    --show-column-numbers --show-error-end --show-absolute-path --no-color-output \
    --no-error-summary --explicit-package-bases --namespace-packages --check-untyped-defs \
    --disallow-untyped-defs --disallow-incomplete-defs --disallow-untyped-calls \
    --disallow-untyped-decorators --disallow-any-generics --disallow-any-explicit \
    --disallow-any-unimported --disallow-any-expr --disallow-subclassing-any --warn-unused-ignores \
    --warn-return-any --warn-unreachable --warn-redundant-casts --warn-unused-configs \
    --no-implicit-optional --implicit-optional --strict-optional --no-strict-optional \
    --strict-equality --no-implicit-reexport --implicit-reexport --allow-redefinition \
    --local-partial-types --no-site-packages --skip-version-check --python-version: --platform: \
    --follow-imports: --disable-error-code: --enable-error-code: -p: --package: -m: --module: \
    --exclude:text --soft-error-limit:";
const RUFF: &str = "\
    -q --quiet -s --silent -v --verbose -n --no-cache --preview --no-preview --statistics --diff \
    --no-fix --exit-zero --show-files --show-settings --force-exclude --no-force-exclude \
    --respect-gitignore -e --ignore-noqa --isolated -h --help --select: --ignore: --extend-select: \
    --extend-ignore: --fixable: --unfixable: --output-format: --line-length: --target-version: \
    --exclude:text --extend-exclude:text";
const BLACK: &str = "\
    --check --diff --color --no-color -q --quiet -v --verbose -S --skip-string-normalization -C \
    --skip-magic-trailing-comma --fast --safe --preview --pyi --ipynb -h --help --version -l: \
    --line-length: -t: --target-version: -W: --workers: --include:text --exclude:text \
    --extend-exclude:text --force-exclude:text";
const FLAKE8: &str = "\
    -v --verbose -q --quiet --count --statistics --show-source --no-show-source --exit-zero \
    --disable-noqa --doctests --benchmark --version -h --help --max-line-length: --max-complexity: \
    --max-doc-length: --indent-size: --select: --extend-select: --ignore: --extend-ignore: -j: \
    --jobs: --color: --exclude:text --extend-exclude:text --filename:text --per-file-ignores:text";
const PYLINT: &str = "\
    -E --errors-only -v --verbose --exit-zero --fail-under: --disable: --enable: -d: -e: --jobs: -j: \
    --score: -s: --reports: -r: --output-format:word -f:word --max-line-length: --msg-template:text \
    --ignore:text --ignore-patterns:text --recursive: --persistent: --version -h --help";
const PYRIGHT: &str = "\
    --outputjson --stats --verbose --warnings --level: --pythonversion: --pythonplatform: --version \
    -h --help -p:path --project:path";
const UNITTEST: &str = "\
    -v --verbose -q --quiet -f --failfast -b --buffer -c --catch --locals -h --help -k:text \
    --durations: -p:text --pattern:text -s:path --start-directory:path -t:path \
    --top-level-directory:path";
const ISORT: &str = "\
    -c --check --check-only --diff -q --quiet -v --verbose --version --show-files --profile: \
    --line-length: -l: --skip-glob:text";
const GO_BUILD: &str = "\
    -v -x -n -a -race -msan -asan -cover -trimpath -mod=readonly -mod=vendor -buildvcs=false \
    -buildvcs=true -p: -tags: -o:output";
const GO_LIST: &str = "\
    -m -json -deps -test -e -find -export -compiled -u -versions -retracted -v -mod=readonly \
    -mod=vendor -f:text -tags:";
const GOLANGCI: &str = "\
    --fast -v --verbose --tests --no-config --disable-all --enable-all --new --print-issued-lines \
    --show-stats --timeout: --enable: -E: --disable: -D: --default: --build-tags: \
    --max-issues-per-linter: --max-same-issues: --color: --concurrency: -j: --issues-exit-code: \
    --new-from-rev:data";
const CLIPPY: &str = "\
    --workspace --all --release -r --lib --bins --tests --examples --benches --all-targets \
    --all-features --no-default-features --no-deps -q --quiet -v --verbose --locked --offline \
    --frozen --keep-going -h -p: --package: --exclude:data --bin:data --test:data --example:data \
    --bench:data -F:data --features:data -j: --jobs: --profile: --color: --message-format: \
    --target:";
const NEXTEST: &str = "\
    --workspace --all --release -r --lib --bins --tests --examples --benches --all-targets \
    --all-features --no-default-features -q --quiet -v --verbose --locked --offline --frozen \
    --no-fail-fast --fail-fast --no-run --no-capture --nocapture -p: --package: --exclude:data \
    --bin:data --test:data --example:data --bench:data -F:data --features:data -j: --test-threads: \
    --cargo-profile: -P: --profile: --color: --retries: --partition: --status-level: \
    --final-status-level: --success-output: --failure-output: --run-ignored: -E:data \
    --filterset:data --no-tests:";
const MAKE: &str = "\
    -B -d -i -k -n -q -r -R -s -t -w --always-make --ignore-errors --keep-going --just-print \
    --dry-run --recon --question --no-builtin-rules --no-builtin-variables --silent --quiet \
    --touch --print-directory --no-print-directory --trace -v --version -h --help -j? --jobs? -l? \
    --load-average? -O? --output-sync? -C:path --directory:path";
const MAVEN: &str = "\
    -q --quiet -B --batch-mode -o --offline -e --errors -X --debug -ntp --no-transfer-progress \
    -fae -ff -fn -am -amd -N -nsu -DskipTests -DskipITs -DskipTests=true -DskipTests=false -T: -pl: \
    -Dtest:data -Dit.test:data";
const GRADLE: &str = "\
    -q --quiet -i --info -d --debug -s --stacktrace -S --full-stacktrace --offline --no-daemon \
    --daemon --parallel --no-parallel --build-cache --no-build-cache --continue --dry-run -m \
    --rerun-tasks --warning-mode: --console: --max-workers: --tests:data -x:data \
    --exclude-task:data";
const DOTNET: &str = "\
    --no-restore --no-build --nologo --no-incremental --no-dependencies --force -q --list-tests -t \
    --blame -c: --configuration: -f: --framework: -v: --verbosity: -r: --runtime: --filter:data";
const RSPEC: &str = "\
    -b --backtrace --color --no-color --force-color --fail-fast --no-fail-fast --only-failures \
    --next-failure -n --dry-run -p --profile -w --warnings -f:word --format:word --seed: --order: \
    -t:data --tag:data -e:text --example:text -E:text --example-matches:text -P:text \
    --pattern:text";
const RUBOCOP: &str = "\
    -l --lint -x -D --display-cop-names --no-display-cop-names -S -E --extra-details -P --parallel \
    --no-parallel --color --no-color --force-exclusion --fail-fast -F --debug -d -L \
    --list-target-files -f:word --format:word --only:data --except:data --fail-level:";
const PHPUNIT: &str = "\
    --testdox --stop-on-failure --stop-on-error --stop-on-defect --no-coverage --no-progress \
    --no-output --verbose -v --debug --list-tests --list-groups --list-suites --strict-coverage \
    --fail-on-warning --fail-on-risky --colors? --filter:text --testsuite:text --group: \
    --exclude-group: --order-by: --random-order-seed:";
const MIX: &str = "\
    --trace --failed --stale --cover --color --no-color --force --warnings-as-errors \
    --all-warnings --no-compile --no-start --no-deps-check --no-archives-check --strict \
    --max-failures: --seed: --slowest: --timeout: --only:data --exclude:data --include:data \
    --partitions:";
/// Options of the other test programs of JavaScript.
const BUN_TEST: &str = "\
    --only --todo --coverage --rerun-each: --bail? --timeout: -t:text --test-name-pattern:text";
const DENO: &str = "\
    -q --quiet --json --compact --check --no-check --doc --all --fail-fast --parallel --trace-leaks \
    --filter:text --ignore:path --line-width: --indent-width: --use-tabs --single-quote";

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    // Variables in operands replace the shell and the compiler.
    closed(&["make"], Tokens, &[MAKE]),
    closed(&["gmake"], Tokens, &[MAKE]),
    closed(&["ninja"], Tokens, &["-v --verbose --quiet --version -n -k: -j: -l: -C:path -d:word"]),
    closed(
        &["cmake", "--build"],
        FILES,
        &["-v --verbose --clean-first -j? --parallel? --config: -t: --target:"],
    ),
    closed(
        &["ctest"],
        Nothing,
        &["-V -VV -Q --quiet --verbose --extra-verbose --output-on-failure --progress \
            --rerun-failed --stop-on-failure -N --show-only --schedule-random -j? --parallel? -C: \
            --timeout: --repeat: --test-dir:path -R:text -E:text -L:text -LE:text"],
    ),
    closed(
        &["meson", "test"],
        Tokens,
        &[
            "-v --verbose -q --quiet --print-errorlogs --no-rebuild --list --no-suite: --suite: -t: \
            --timeout-multiplier: --repeat: --num-processes: -j: -C:path",
        ],
    ),
    closed(&["meson", "compile"], Tokens, &["-v --verbose -j: --jobs: -C:path"]),
    whole(&["eslint"], FILES, &[ESLINT]),
    whole(&["npx", "eslint"], FILES, &[ESLINT]),
    // A word such as `false` after an option is its value.
    whole(&["tsc"], Sources, &[TSC]),
    whole(&["npx", "tsc"], Sources, &[TSC]),
    whole(&["prettier"], FILES, &[PRETTIER]),
    whole(&["npx", "prettier"], FILES, &[PRETTIER]),
    runner(&["jest"], &[super::projects::RUNNER_OPTIONS]),
    runner(&["npx", "jest"], &[super::projects::RUNNER_OPTIONS]),
    runner(&["mocha"], &[super::projects::RUNNER_OPTIONS]),
    runner(&["npx", "mocha"], &[super::projects::RUNNER_OPTIONS]),
    runner(&["vitest", "run"], &[super::projects::RUNNER_OPTIONS]),
    runner(&["npx", "vitest", "run"], &[super::projects::RUNNER_OPTIONS]),
    runner(&["bun", "test"], &[BUN_TEST]),
    whole(&["deno", "test"], FILES, &[DENO]),
    whole(&["deno", "lint"], FILES, &[DENO]),
    whole(&["deno", "fmt"], FILES, &[DENO]),
    whole(&["deno", "check"], FILES, &[DENO]),
    script(&["npm", "run"]),
    script(&["pnpm", "run"]),
    script(&["yarn", "run"]),
    argparse(&["mypy"], FILES, &[MYPY]),
    argparse(&["python", "-m", "mypy"], FILES, &[MYPY]),
    argparse(&["python3", "-m", "mypy"], FILES, &[MYPY]),
    spec(&["ruff", "check"], FILES, &[RUFF]),
    spec(&["ruff", "format"], FILES, &["--check", RUFF]),
    spec(&["black"], FILES, &[BLACK]),
    argparse(&["isort"], FILES, &[ISORT]),
    argparse(&["flake8"], FILES, &[FLAKE8]),
    argparse(&["pylint"], FILES, &[PYLINT]),
    whole(&["pyright"], FILES, &[PYRIGHT]),
    pytest(&["py.test"]),
    pytest(&["python", "-m", "pytest"]),
    pytest(&["python3", "-m", "pytest"]),
    pytest(&["uv", "run", "pytest"]),
    pytest(&["poetry", "run", "pytest"]),
    pytest(&["pipenv", "run", "pytest"]),
    argparse(&["python", "-m", "unittest"], Tokens, &[UNITTEST]),
    argparse(&["python3", "-m", "unittest"], Tokens, &[UNITTEST]),
    // A second operand is written.
    json_tool(&["python", "-m", "json.tool"]),
    json_tool(&["python3", "-m", "json.tool"]),
    whole(&["go", "build"], FILES, &[GO_BUILD]),
    whole(&["go", "list"], FILES, &[GO_LIST]),
    whole(&["go", "fmt"], FILES, &["-n -x"]),
    whole(&["golangci-lint", "run"], FILES, &[GOLANGCI]),
    whole(
        &["staticcheck"],
        FILES,
        &["-tests -version -checks:data -f:word -go: -explain: -fail:data"],
    ),
    Spec { style: OptionSyntax::Whole, ..reads(&["gofmt"], FILES, &["-l -d -e -s -r:text"]) },
    Spec { after: Some(&LINTS), ..spec(&["cargo", "clippy"], Nothing, &[CLIPPY]) },
    closed(&["cargo", "nextest", "run"], Data, &[NEXTEST]),
    closed(&["cargo", "nextest", "list"], Data, &[NEXTEST]),
    whole(&["mvn", "test"], Nothing, &[MAVEN]),
    whole(&["mvn", "compile"], Nothing, &[MAVEN]),
    whole(&["mvn", "verify"], Nothing, &[MAVEN]),
    whole(&["mvn", "package"], Nothing, &[MAVEN]),
    whole(&["gradle", "test"], Nothing, &[GRADLE]),
    whole(&["gradle", "check"], Nothing, &[GRADLE]),
    whole(&["gradle", "build"], Nothing, &[GRADLE]),
    argparse(&["dotnet", "build"], Sources, &[DOTNET]),
    argparse(&["dotnet", "test"], Sources, &[DOTNET]),
    spec(&["rspec"], FILES, &[RSPEC]),
    spec(&["bundle", "exec", "rspec"], FILES, &[RSPEC]),
    spec(&["rubocop"], FILES, &[RUBOCOP]),
    spec(&["bundle", "exec", "rubocop"], FILES, &[RUBOCOP]),
    whole(&["phpunit"], FILES, &[PHPUNIT]),
    spec(
        &["composer", "validate"],
        Nothing,
        &["--strict --no-check-all --no-check-publish --no-check-lock --no-check-version"],
    ),
    whole(&["mix", "test"], FILES, &[MIX]),
    whole(&["mix", "compile"], Nothing, &[MIX]),
    whole(&["mix", "credo"], FILES, &[MIX]),
    whole(&["mix", "format"], FILES, &["--check-formatted --dry-run --check-equivalent --no-exit"]),
    whole(
        &["swift", "build"],
        Nothing,
        &["-v --verbose -q --quiet -c: --configuration: --target: --product: -j: --jobs:"],
    ),
    whole(
        &["swift", "test"],
        Nothing,
        &["-v --verbose -q --quiet --parallel --skip-build -c: --configuration: --filter:text \
            --skip:text"],
    ),
    // `-F`, `-t`, `-c` and `-C` take the message from elsewhere, `-S` runs gpg, `-n` skips the
    // hooks.
    spec(
        &["git", "commit"],
        Versions,
        &["-a --all --amend --no-edit --allow-empty -q --quiet -v --verbose -s --signoff \
            --dry-run --short --porcelain --branch --no-status -m:text --message:text --fixup:data \
            --author:text --date:text --trailer:text -u?"],
    ),
    spec(
        &["git", "switch"],
        Versions,
        &["-q --quiet -d --detach --guess --no-guess --track --no-track -c:data --create:data"],
    ),
    spec(
        &["git", "cherry-pick"],
        Versions,
        &["-x -n --no-commit -s --signoff --ff --abort --continue"],
    ),
    spec(
        &["git", "merge"],
        Versions,
        &[
            "--no-ff --ff --ff-only --no-commit --squash --no-edit --abort -q --quiet --stat -m:text",
        ],
    ),
    spec(&["git", "submodule", "status"], Versions, &["--recursive --cached -q --quiet"]),
    spec(&["git", "checkout", "-b"], Versions, &["-q --quiet --track --no-track"]),
    spec(&["git", "restore", "--staged"], Versions, &["-q --quiet"]),
    spec(&["git", "mv"], Versions, &["-v -n -k --verbose --dry-run"]),
    spec(&["git", "stash"], Nothing, &["-u --include-untracked -q --quiet -k --keep-index"]),
    spec(
        &["git", "stash", "push"],
        Versions,
        &["-u --include-untracked -q --quiet -k --keep-index -S --staged -m:text --message:text"],
    ),
    spec(&["git", "stash", "pop"], Nothing, &["-q --quiet --index"]),
];

/// A script of `package.json`, whose options after `--` are those of the test programs.
const fn script(words: &'static [&'static str]) -> Spec {
    Spec {
        style: OptionSyntax::Whole,
        after: Some(&RUNNER),
        ..spec(
            words,
            Tokens,
            &["-s --silent -q --quiet --if-present -w:path --workspace:path --workspaces"],
        )
    }
}

const fn json_tool(words: &'static [&'static str]) -> Spec {
    Spec {
        style: OptionSyntax::Argparse,
        operands_max: Some(1),
        ..configured(
            words,
            FILES,
            &["--sort-keys --no-ensure-ascii --json-lines --tab --no-indent --compact --indent:"],
        )
    }
}
