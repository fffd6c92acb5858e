//! Linters, listings of archives, binary files and packages, and the state of services. Sources:
//! the manuals of `ShellCheck` 0.10, shfmt 3, Bats 1.11, Playwright 1.49, Vite 6, Biome 1.9, Stylelint
//! 16, Turborepo 2, coverage 7, tox 4, nox 2024, Bandit 1.8, yamllint 1.35, pre-commit 4, Cppcheck
//! 2.16, clang-tidy and clang-format 19, `PHPStan` 2, Dart 3, Hadolint 2, actionlint 1.7, GNU tar
//! 1.35, Info-ZIP 6, binutils 2.43, fd 10, bat 0.24, man-db 2.13, pip 24, Poetry 1.8, Composer 2,
//! Docker 27, kubectl 1.31, Helm 3 and Terraform 1.9.
//!
//! Left out, as in `checks.rs`: what loads code or settings from a named file, runs a named program
//! (`-x` of fd, `--pager` of bat, `-P` of man, `-I` and `--checkpoint-action` of tar), writes a file
//! (`--fix`, `--write`, `-w` of shfmt and goimports, `-o` of iconv), installs or fetches something,
//! or shows secrets (`kubectl get secrets`, `docker inspect`).

use super::Operands::{Archives, Data, Nothing, Pattern, Sources, Tokens};
use super::checks::{argparse, closed, whole};
use super::{FILES, Spec, configured, reads, spec};

const PLAYWRIGHT: &str = "\
    -x --list --headed --quiet --fully-parallel --forbid-only --pass-with-no-tests --last-failed \
    --project: --reporter:reporter -g:text --grep:text --grep-invert:text -j: --workers: --retries: \
    --max-failures: --timeout: --shard:text --repeat-each:";
const BIOME: &str = "\
    --verbose --no-errors-on-unmatched --error-on-warnings --colors: --max-diagnostics: \
    --diagnostic-level: --reporter:word --log-level: --only:data --skip:data";

/// The entry of a command that lists the files in an archive.
const fn archive(words: &'static [&'static str]) -> Spec {
    configured(words, Archives, &["-v --verbose"])
}

/// The entry of a command that shows a kind of objects of a cluster that holds no secrets.
const fn objects(words: &'static [&'static str]) -> Spec {
    whole(
        words,
        Tokens,
        &[
            "-n: --namespace: -A --all-namespaces -o: --output: -l:data --selector:data --show-labels \
            --no-headers --sort-by:data --field-selector:data",
        ],
    )
}

const fn fd(words: &'static [&'static str]) -> Spec {
    reads(
        words,
        Pattern,
        &["-a -F -g -H -i -I -p -s -u -0 -1 -q --absolute-path --fixed-strings --glob --hidden \
            --ignore-case --no-ignore --no-ignore-vcs --full-path --case-sensitive --unrestricted \
            --print0 --quiet --one-file-system -h --help -V --version -e: --extension: -t: --type: \
            -d: --max-depth: --min-depth: --exact-depth: -c: --color: -j: --threads: -S: --size: \
            --max-results: --changed-within:text --changed-before:text -E:text --exclude:text"],
    )
}

const fn bat(words: &'static [&'static str]) -> Spec {
    reads(
        words,
        FILES,
        &["-p -pp -n -A -P -f -h -V --plain --number --show-all --no-pager --force-colorization \
            --help --version --list-themes --list-languages --paging=never -l: --language: \
            --color: --decorations: --style: --theme: --wrap: --tabs: --terminal-width: -r:data \
            --line-range:data -H:data --highlight-line:data"],
    )
}

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    Spec {
        inert: true,
        ..reads(
            &["shellcheck"],
            FILES,
            &["-a -V --version --help --norc --check-sourced --list-optional -e: --exclude: -f: \
                --format: -i: --include: -o: --enable: -S: --severity: -s: --shell: -W: \
                --wiki-link-count: -C? --color?"],
        )
    },
    whole(
        &["clang-format"],
        FILES,
        &["-n --dry-run --Werror --verbose --sort-includes --style: --length: --offset: --lines:"],
    ),
    // `+n` before the script turns the check off.
    Spec { operands_max: Some(1), ..reads(&["bash", "-n"], Sources, &[]) },
    Spec { operands_max: Some(1), ..reads(&["sh", "-n"], Sources, &[]) },
    whole(&["node", "--check"], Sources, &[]),
    whole(&["node", "-c"], Sources, &[]),
    whole(&["ruby", "-c"], Sources, &[]),
    whole(&["php", "-l"], Sources, &[]),
    archive(&["tar", "-tf"]),
    archive(&["tar", "-tvf"]),
    archive(&["tar", "-tzf"]),
    archive(&["tar", "-tzvf"]),
    archive(&["tar", "-ztf"]),
    archive(&["tar", "-ztvf"]),
    archive(&["tar", "-tjf"]),
    archive(&["tar", "-tJf"]),
    archive(&["tar", "tf"]),
    archive(&["tar", "tvf"]),
    archive(&["tar", "tzf"]),
    archive(&["tar", "tzvf"]),
    archive(&["tar", "ztf"]),
    archive(&["tar", "ztvf"]),
    archive(&["tar", "tjf"]),
    archive(&["tar", "tJf"]),
    reads(&["unzip", "-l"], FILES, &["-v -q"]),
    reads(&["unzip", "-Z"], FILES, &["-1 -2 -s -m -l -v -h -t"]),
    reads(&["unzip", "-Z1"], FILES, &[]),
    reads(&["zipinfo"], FILES, &["-1 -2 -s -m -l -v -h -t"]),
    reads(&["zcat"], FILES, &["-f"]),
    reads(&["xzcat"], FILES, &[]),
    reads(&["bzcat"], FILES, &[]),
    reads(
        &["objdump"],
        FILES,
        &["-d -D -f -h -p -r -R -s -t -T -w -x -z -C --disassemble --disassemble-all \
            --file-headers --section-headers --headers --syms --dynamic-syms --all-headers \
            --no-show-raw-insn --demangle -j:text --section:text -M:"],
    ),
    reads(
        &["readelf"],
        FILES,
        &["-a -d -e -h -l -n -r -s -S -t -u -V -W -A -I --all --file-header --program-headers \
            --segments --section-headers --sections --headers --syms --symbols --dyn-syms --notes \
            --relocs --dynamic --version-info --wide -p:text -x:text"],
    ),
    reads(&["size"], FILES, &["-A -B -G -d -o -x -t --totals --common --format: --radix:"]),
    fd(&["fd"]),
    fd(&["fdfind"]),
    bat(&["bat"]),
    bat(&["batcat"]),
    spec(&["man"], Tokens, &["-a -f -k -w -W --all --whatis --apropos --where --path -s:"]),
    reads(&["help"], Tokens, &["-d -m -s"]),
    whole(
        &["docker", "ps"],
        Nothing,
        &[
            "-a --all -q --quiet -l --latest -s --size --no-trunc -n: --last: -f:data --filter:data \
            --format:text",
        ],
    ),
    whole(
        &["docker", "images"],
        Tokens,
        &["-a --all -q --quiet --digests --no-trunc --tree -f:data --filter:data --format:text"],
    ),
    whole(&["docker", "version"], Nothing, &["-f:text --format:text"]),
    whole(
        &["docker", "compose", "ps"],
        Tokens,
        &["-a --all -q --quiet --services --no-trunc --format:text --status: --filter:data"],
    ),
    objects(&["kubectl", "get", "pods"]),
    objects(&["kubectl", "get", "pod"]),
    objects(&["kubectl", "get", "po"]),
    objects(&["kubectl", "get", "deployments"]),
    objects(&["kubectl", "get", "deployment"]),
    objects(&["kubectl", "get", "deploy"]),
    objects(&["kubectl", "get", "services"]),
    objects(&["kubectl", "get", "svc"]),
    objects(&["kubectl", "get", "nodes"]),
    objects(&["kubectl", "get", "namespaces"]),
    objects(&["kubectl", "get", "ns"]),
    objects(&["kubectl", "get", "ingress"]),
    objects(&["kubectl", "get", "jobs"]),
    objects(&["kubectl", "get", "events"]),
    whole(&["kubectl", "version"], Nothing, &["--client -o: --output:"]),
    whole(&["helm", "lint"], FILES, &["--strict --quiet --with-subcharts -f:path --values:path"]),
    whole(
        &["helm", "list"],
        Nothing,
        &["-a --all -A --all-namespaces -q --short -n: -o: --output:"],
    ),
    whole(&["terraform", "validate"], Nothing, &["-json -no-color"]),
    whole(
        &["terraform", "fmt"],
        FILES,
        &["-check -diff -recursive -no-color -list=false -list=true -write=false"],
    ),
    whole(&["terraform", "version"], Nothing, &["-json"]),
    spec(
        &["rustfmt"],
        FILES,
        &["--check -l --files-with-diff -q --quiet -v --verbose --edition: --color:"],
    ),
    whole(
        &["node", "--test"],
        FILES,
        &[
            "--test-only --test-force-exit --test-name-pattern:text --test-reporter:reporter --test-concurrency: --test-timeout:",
        ],
    ),
    whole(&["playwright", "test"], FILES, &[PLAYWRIGHT]),
    whole(&["npx", "playwright", "test"], FILES, &[PLAYWRIGHT]),
    whole(&["vite", "build"], Nothing, &["-l: --logLevel: -m: --mode: --minify? --sourcemap?"]),
    whole(&["biome", "check"], FILES, &[BIOME]),
    whole(&["biome", "lint"], FILES, &[BIOME]),
    whole(&["biome", "ci"], FILES, &[BIOME]),
    whole(
        &["stylelint"],
        FILES,
        &["-q --quiet -f:word --formatter:word --max-warnings: --color --no-color"],
    ),
    whole(&["svelte-check"], Nothing, &["--threshold: --output: --fail-on-warnings"]),
    whole(
        &["turbo", "run"],
        Tokens,
        &[
            "--force --continue --parallel --no-daemon --filter:data --concurrency: --output-logs: --ui:",
        ],
    ),
    spec(
        &["coverage", "report"],
        FILES,
        &[
            "-m --show-missing --skip-covered --skip-empty --no-skip-covered -i --include:text --omit:text --sort: --precision: --fail-under: --format:",
        ],
    ),
    closed(
        &["tox"],
        Nothing,
        &["-q -v -r --recreate -p? --parallel? -e:data --skip-missing-interpreters"],
    ),
    closed(
        &["nox"],
        Tokens,
        &[
            "-l --list -r -R --reuse-existing-virtualenvs --no-install -s: --sessions: -t: --tags: -k:text --error-on-missing-interpreters",
        ],
    ),
    argparse(
        &["bandit"],
        FILES,
        &[
            "-r --recursive -l -ll -lll -i -ii -iii -q --quiet -v -s: --skip: -t: --tests: -f:word --format:word -x:text --exclude:text",
        ],
    ),
    argparse(&["yamllint"], FILES, &["-s --strict --no-warnings -f: --format:"]),
    argparse(
        &["pre-commit", "run"],
        Tokens,
        &["-a --all-files -v --verbose --show-diff-on-failure --hook-stage: --color:"],
    ),
    whole(&["goimports"], FILES, &["-l -d -e -local:data"]),
    whole(&["govulncheck"], FILES, &["-test -show: -mode=source -json -tags:"]),
    whole(
        &["cppcheck"],
        FILES,
        &[
            "-q --quiet -v --verbose --force --inline-suppr --inconclusive -j: --enable: --std: --language: --platform:word --error-exitcode: --suppress:data --max-configs:",
        ],
    ),
    whole(
        &["clang-tidy"],
        FILES,
        &[
            "--quiet -quiet -p:path --checks:text -checks:text --warnings-as-errors:text --use-color",
        ],
    ),
    whole(
        &["phpstan", "analyse"],
        FILES,
        &["--no-progress --ansi --no-ansi -v -vv -l: --level: --memory-limit: --error-format:word"],
    ),
    whole(&["dart", "analyze"], FILES, &["--fatal-infos --fatal-warnings --no-fatal-warnings"]),
    whole(
        &["dart", "test"],
        FILES,
        &[
            "-n:text --name:text -t: --tags: -x: --exclude-tags: -j: --concurrency: -r:word --reporter:word --coverage=coverage",
        ],
    ),
    whole(
        &["hadolint"],
        FILES,
        &["--no-fail --no-color --strict-labels -f: --format: --ignore: -t: --failure-threshold:"],
    ),
    whole(&["actionlint"], FILES, &["-color -no-color -verbose -oneline -ignore:text"]),
    whole(&["buf", "lint"], FILES, &["--error-format:word"]),
    whole(
        &["shfmt"],
        FILES,
        &["-d -l -s -ci -bn -sr -kp -fn -f -i: -ln: --diff --list --simplify"],
    ),
    spec(
        &["bats"],
        FILES,
        &[
            "-r --recursive -t --tap -T --timing -p --pretty --print-output-on-failure --verbose-run -f:text --filter:text -j: --jobs:",
        ],
    ),
    spec(&["pip", "show"], Tokens, &["-f --files -v --verbose"]),
    spec(
        &["pip", "list"],
        Nothing,
        &["-o --outdated -u --uptodate -e --editable --not-required --format: -v"],
    ),
    whole(
        &["poetry", "show"],
        Tokens,
        &["-t --tree -l --latest -o --outdated -a --all -T --top-level"],
    ),
    whole(
        &["composer", "show"],
        Tokens,
        &["-t --tree -D --direct -i --installed -P --path -l --latest -o --outdated"],
    ),
    whole(&["yarn", "why"], Tokens, &["--recursive -R"]),
    whole(
        &["pnpm", "list"],
        Tokens,
        &["--json --long --parseable --prod -P --dev -D --depth: -r --recursive"],
    ),
    whole(
        &["docker", "logs"],
        Tokens,
        &["-t --timestamps --details --since: --until: -n: --tail:"],
    ),
    whole(
        &["docker", "compose", "logs"],
        Tokens,
        &["-t --timestamps --no-color --no-log-prefix --since: --until: -n: --tail:"],
    ),
    whole(
        &["kubectl", "logs"],
        Tokens,
        &[
            "-p --previous --timestamps --all-containers -n: --namespace: -c: --container: --tail: --since: -l:data",
        ],
    ),
    whole(
        &["kubectl", "describe"],
        Tokens,
        &["-n: --namespace: -A --all-namespaces -l:data --show-events"],
    ),
    whole(
        &["helm", "template"],
        FILES,
        &[
            "--debug -n: --namespace: -f:path --values:path --set:data --set-string:data -s:path --show-only:path --include-crds --kube-version:",
        ],
    ),
    reads(&["ar", "t"], FILES, &[]),
    configured(&["jar", "tf"], FILES, &[]),
    reads(
        &["nm"],
        FILES,
        &[
            "-A -C -D -a -g -n -p -r -S -u -v --demangle --dynamic --extern-only --defined-only --undefined-only --numeric-sort --size-sort",
        ],
    ),
    reads(
        &["pgrep"],
        Data,
        &[
            "-a -c -f -i -l -n -o -v -w -x --full --list-name --list-full --count --newest --oldest --exact -u: -U: -g: -G: -P: -t: -s: --euid: --parent:",
        ],
    ),
    reads(&["iconv"], FILES, &["-c -l -s --list --silent -f: -t: --from-code: --to-code:"]),
    reads(&["gzip", "-l"], FILES, &["-v --verbose"]),
    reads(&["zgrep"], Pattern, &["-c -E -F -h -H -i -l -n -o -v -w -q -A: -B: -C: -m: -e:pattern"]),
    reads(&["sleep"], Tokens, &[]),
    configured(&["rustc", "--explain"], Tokens, &[]),
    configured(&["rustup", "show"], Tokens, &["-v --verbose"]),
];
