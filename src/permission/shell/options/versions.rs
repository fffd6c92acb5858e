//! Programs of projects that print their version or facts about the project. Sources: the manuals
//! of the programs; cargo 1.95, npm 11.19.
//!
//! They count as configured by the project: rustup and version managers choose the program by a
//! file of the project, yarn and pnpm run the version that it names, and cargo runs the compiler
//! of `build.rustc`. `cargo metadata`, `cargo pkgid` and `npm ls` may write the lock file or a
//! cache. Left out: `--manifest-path` and `--config` of cargo, which lead elsewhere; `--global` of
//! npm and all options that load settings or code.

use super::Operands::{Data, Nothing};
use super::{OptionSyntax, Spec, configured, confined};

/// The entry of a program that prints its version with this option.
const fn version(words: &'static [&'static str]) -> Spec {
    configured(words, Nothing, &[])
}

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    confined(
        &["cargo", "metadata"],
        Nothing,
        &["--no-deps --all-features --no-default-features --locked --offline --frozen -q --quiet \
            -v --verbose --color: --format-version: --filter-platform: -F:data --features:data"],
    ),
    configured(
        &["cargo", "locate-project"],
        Nothing,
        &["--workspace --message-format: -q --quiet -v --verbose --color: --locked --offline \
            --frozen"],
    ),
    confined(
        &["cargo", "pkgid"],
        Data,
        &["-p: --package: -q --quiet -v --verbose --color: --locked --offline --frozen"],
    ),
    Spec {
        style: OptionSyntax::Whole,
        ..confined(
            &["npm", "ls"],
            Data,
            &["-a --all --json -l --long -p --parseable --link --package-lock-only --unicode \
                --no-unicode --depth: --omit: --include: --loglevel: -s --silent"],
        )
    },
    version(&["awk", "--version"]),
    version(&["bash", "--version"]),
    version(&["bun", "--version"]),
    version(&["bundle", "--version"]),
    configured(&["cargo", "--version"], Nothing, &["-v --verbose"]),
    version(&["cargo", "-V"]),
    version(&["clang", "--version"]),
    version(&["cmake", "--version"]),
    version(&["composer", "--version"]),
    version(&["curl", "--version"]),
    version(&["deno", "--version"]),
    version(&["docker", "--version"]),
    version(&["dotnet", "--version"]),
    version(&["g++", "--version"]),
    version(&["gcc", "--version"]),
    version(&["go", "version"]),
    version(&["java", "--version"]),
    version(&["java", "-version"]),
    version(&["javac", "--version"]),
    version(&["javac", "-version"]),
    version(&["make", "--version"]),
    version(&["mvn", "--version"]),
    version(&["ninja", "--version"]),
    version(&["node", "--version"]),
    version(&["node", "-v"]),
    version(&["npm", "--version"]),
    version(&["npm", "-v"]),
    version(&["npx", "--version"]),
    version(&["perl", "--version"]),
    version(&["php", "--version"]),
    version(&["pip", "--version"]),
    version(&["pip3", "--version"]),
    version(&["pnpm", "--version"]),
    version(&["poetry", "--version"]),
    version(&["pytest", "--version"]),
    version(&["python", "--version"]),
    version(&["python", "-V"]),
    version(&["python3", "--version"]),
    version(&["python3", "-V"]),
    version(&["rsync", "--version"]),
    version(&["ruby", "--version"]),
    configured(&["rustc", "--version"], Nothing, &["-v --verbose"]),
    version(&["rustc", "-vV"]),
    version(&["rustc", "-V"]),
    version(&["rustfmt", "--version"]),
    version(&["rustup", "--version"]),
    version(&["sed", "--version"]),
    version(&["tar", "--version"]),
    version(&["tsc", "--version"]),
    version(&["uv", "--version"]),
    version(&["yarn", "--version"]),
];
