//! Programs that build and test a project. Sources: the manuals of cargo 1.95, the test harness of
//! Rust 1.95, npm 11.19, pytest 9.2, Jest 29, Mocha 10, Vitest 1 and Go 1.22.

use super::Operands::{Data, Nothing};
use super::{FILES, OptionSyntax, Spec, confined, spec};

// Left out of cargo: `--config` and `--manifest-path` change the target, `--target-dir` and
// `--timings` write, `-Z` has arbitrary effects, `--help` opens a viewer.
/// Options of the commands of cargo that compile.
const CARGO: &str = "\
    --workspace --all --release -r --lib --bins --tests --examples --benches --all-targets \
    --all-features --no-default-features -q --quiet -v --verbose --locked --offline --frozen \
    --keep-going --ignore-rust-version --future-incompat-report -h -p: --package: --exclude:data \
    --bin:data --test:data --example:data --bench:data -F:data --features:data -j: --jobs: --profile: --color: \
    --message-format: --target:";
/// Further options of the commands of cargo that only compile.
const BUILD: &str = "--no-deps --document-private-items";
/// Further options of `cargo test`.
const TEST: &str = "--doc --no-run --no-fail-fast";
/// Options of `cargo bench`.
const BENCH: &str = "\
    --workspace --lib --bins --benches --all-features --no-run --no-fail-fast -q --quiet -v \
    --locked --offline --frozen -p: --package: --bench: -F:data --features:data -j: --jobs: \
    --color:";
// Left out of npm: all other configuration options, which can select another shell, project,
// registry or log folder, or options for Node.
const NPM: &str = "\
    -s --silent -q --quiet -d -dd -ddd --verbose --if-present --ignore-scripts -w:path \
    --workspace:path --workspaces -ws --ws --include-workspace-root -iwr --loglevel: \
    --foreground-scripts --offline --prefer-offline --no-fund --no-audit --no-color \
    --no-progress --no-update-notifier --no-unicode --json --parseable";
/// All other configuration options of npm that do not begin with `no-`, and its other names for
/// options.
const NPM_OTHERS: &str = "\
    --_auth --access --all --allow- --also --audit --auth-type --before --bin-links --browser \
    --bypass-2fa --ca --cache --cafile --call --cert --cidr --color --commit-hooks --cpu \
    --dangerously- --depth --description --dev --diff --dry-run --editor --engine-strict \
    --expect-result --expires --fetch- --force --format-package-lock --fund --git --global \
    --heading --https-proxy --include --include-staged --include-attestations --init --install- \
    --key --legacy- --libc --link --local --location --lockfile-version --logs- --long --maxsockets \
    --message --min-release-age --name --node-gyp --node-options --noproxy --omit --only --optional \
    --orgs --os --otp --pack- --package --packages --prefer-dedupe --prefer-online --prefix --preid \
    --production --progress --provenance --proxy --read-only --readonly --rebuild-bundle --reg \
    --registry --replace-registry-host --save --sbom- --scope --scopes --script-shell --search \
    --shell --shrinkwrap --sign-git --strict- --tag --timing --token- --umask --unicode \
    --update-notifier --usage --user-agent --userconfig --version --versions --viewer --which \
    --workspaces-update --yes --enjoy-by --desc --help --porcelain --iwr --password --iwr";
/// Options of `pnpm test` and `yarn test`.
const PACKAGES: &str = "-s --silent --if-present --ignore-scripts";

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    Spec { after: Some(&HARNESS), ..spec(&["cargo", "test"], Data, &[CARGO, TEST]) },
    Spec { after: Some(&HARNESS), ..spec(&["cargo", "bench"], Data, &[BENCH]) },
    spec(&["cargo", "build"], Nothing, &[CARGO, BUILD]),
    spec(&["cargo", "check"], Nothing, &[CARGO, BUILD]),
    spec(&["cargo", "doc"], Nothing, &[CARGO, BUILD]),
    Spec {
        after: Some(&RUSTFMT),
        ..spec(
            &["cargo", "fmt"],
            Nothing,
            &["--all --check -q --quiet -v --verbose -p: --package:"],
        )
    },
    confined(
        &["cargo", "tree"],
        Data,
        &["--workspace --all-features --no-dedupe -d --duplicates --locked --offline --frozen \
            -p: --package: -e: --edges: --depth: -F:data --features:data -i?data --invert?data \
            --no-default-features --prefix: --charset: --target: --prune:data -q --quiet \
            -v --verbose --color: -f:text --format:text"],
    ),
    Spec {
        style: OptionSyntax::Whole,
        others: Some(NPM_OTHERS),
        after: Some(&RUNNER),
        ..spec(&["npm", "test"], FILES, &[NPM])
    },
    Spec {
        style: OptionSyntax::Whole,
        after: Some(&RUNNER),
        ..spec(&["pnpm", "test"], FILES, &[PACKAGES])
    },
    Spec {
        style: OptionSyntax::Whole,
        after: Some(&RUNNER),
        ..spec(&["yarn", "test"], FILES, &[PACKAGES])
    },
    // Left out of go: `-exec`, `-toolexec`, `-vettool` and the flags of compiler and linker run
    // programs; `-o`, `-c`, the profiles and `-fuzz` write; `-C`, `-modfile` and `-overlay` lead
    // elsewhere; `-mod=mod` changes `go.mod`.
    Spec {
        style: OptionSyntax::Whole,
        ..spec(
            &["go", "test"],
            FILES,
            &["-v -race -msan -asan -short -cover -failfast -json -benchmem -fullpath -a \
                -trimpath -mod=readonly -mod=vendor -vet=off -count: -timeout: -parallel: -cpu: \
                -p: -tags: -covermode: -shuffle: -benchtime: -run:text -bench:text -skip:text \
                -list:text"],
        )
    },
    spec(&["go", "vet"], FILES, &["-v"]),
    Spec { style: OptionSyntax::Argparse, ..spec(&["pytest"], FILES, &[PYTEST]) },
];

// Left out: `-p`, `-c`, `-o`, `--rootdir`, `--confcutdir` and `--pyargs` load code or settings from
// elsewhere; `--pdb` and `--trace` run their input; `--junit-xml`, `--log-file`, `--basetemp`,
// `--debug` write or delete; `--pastebin` uploads; all options of plugins that do not come with
// pytest.
/// Options of pytest.
pub(super) const PYTEST: &str = "\
    -v -q -x -s -l -h -V --exitfirst --verbose --quiet --help --version --lf --last-failed --ff \
    --failed-first --nf --new-first --sw --stepwise --sw-skip --stepwise-skip --sw-reset \
    --stepwise-reset --cache-clear --no-header --no-summary --no-fold-skipped \
    --force-short-summary --disable-warnings --disable-pytest-warnings --showlocals \
    --no-showlocals --xfail-tb --full-trace --fulltrace --runxfail --strict-config \
    --strict-markers --strict --markers --fixtures --funcargs --fixtures-per-test --collect-only \
    --co --noconftest --keep-duplicates --collect-in-virtualenv \
    --continue-on-collection-errors --doctest-modules --doctest-ignore-import-errors \
    --doctest-continue-on-failure --disable-plugin-autoload --trace-config --setup-only \
    --setup-show --setup-plan --maxfail: --durations: --durations-min: --tb: -r: --report-chars: \
    --color: --code-highlight: --capture: --show-capture: --verbosity: --lfnf: \
    --last-failed-no-failures: --max-warnings: --import-mode: --doctest-report: --assert: \
    --log-level: --log-cli-level: --log-auto-indent: -W:word --pythonwarnings:word -k:text -m:text \
    --deselect:text --ignore:text --ignore-glob:text --doctest-glob:files --junit-prefix:text \
    --junitprefix:text --log-format:text --log-date-format:text --log-cli-format:text \
    --log-cli-date-format:text --log-disable:text -p:disabled --cache-show?text";

/// Options of rustfmt after `cargo fmt --`.
static RUSTFMT: Spec =
    spec(&[], Nothing, &["--check -l --files-with-diff -q --quiet -v --edition: --color:"]);

// Left out: `--logfile` writes, `-Z` has arbitrary effects.
/// Options of Rust's test harness.
static HARNESS: Spec = spec(
    &[],
    Data,
    &["--nocapture --no-capture --ignored --include-ignored --exact --list --show-output -q \
        --quiet --test --bench --help -h --exclude-should-panic --force-run-in-process \
        --ensure-time --report-time? --shuffle --shuffle-seed: --test-threads: --color: --format: \
        --skip:data"],
);

// Left out: what loads a file (`--config`, `--require`, `--setupFiles`, `--reporters`), writes
// (`-u`, `--outputFile`, `--coverageDirectory`), leads elsewhere (`--rootDir`, `--roots`, `--dir`),
// runs a program (`--notify`) or never ends (`--watch`).
/// Options of JavaScript's test programs.
pub(super) static RUNNER: Spec = Spec {
    style: OptionSyntax::Whole,
    // A script that runs another script passes them on.
    after: Some(&RUNNER),
    ..spec(&[], FILES, &[RUNNER_OPTIONS])
};

/// The options of [`RUNNER`].
pub(super) const RUNNER_OPTIONS: &str = "\
    --coverage --no-coverage --coverage=false --runInBand -i -b --verbose \
    --verbose=false --silent --ci --bail? --run --passWithNoTests --colors --color \
    --no-color --no-colors --watch=false --watchAll=false --no-watch --no-watchAll \
    --forceExit --detectOpenHandles --detectLeaks --onlyChanged --onlyFailures --lastCommit \
    --listTests --logHeapUsage --noStackTrace --no-cache --randomize --runTestsByPath \
    --findRelatedTests --showSeed --errorOnDeprecated --expand --json --failFast --invert \
    --exit --full-trace --parallel --no-parallel --check-leaks --forbid-only \
    --forbid-pending --inline-diffs --diff --no-diff --dry-run --allowOnly \
    --no-file-parallelism --no-isolate --no-threads --maxWorkers: -w: --maxConcurrency: \
    --testTimeout: --timeout: --slow: --jobs: --retries: --retry: --shard:text --seed: \
    --project: --selectProjects: --changedSince: -t:text --testNamePattern:text \
    -g:text --grep:text --fgrep:text --testPathPattern:text --testPathPatterns:text \
    --testPathIgnorePatterns:text --collectCoverageFrom:text --exclude:text \
    --reporter:reporter";
