//! Tells the linker of a release build which functions to put side by side: `.link/start.ld`.
//!
//! Only where that was seen to work: with a linker of its own choice nobody is told anything, and
//! the program is the same, in more memory.

use std::env;

/// Words in the flags of the compiler that choose a linker or tell it something.
const OWN_LINKER: [&str; 3] = ["linker", "fuse-ld", "link-arg"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=.link/start.ld");
    let value = |name: &str| env::var(name).unwrap_or_default();
    let target = ["ARCH", "OS", "ENV"].map(|part| value(&format!("CARGO_CFG_TARGET_{part}")));
    let fits = target == ["x86_64", "linux", "gnu"]
        && value("PROFILE") == "release"
        && value("HOST") == value("TARGET")
        && value("RUSTC_LINKER").is_empty()
        && !OWN_LINKER.iter().any(|word| value("CARGO_ENCODED_RUSTFLAGS").contains(word));
    if fits {
        let script = value("CARGO_MANIFEST_DIR") + "/.link/start.ld";
        for argument in ["-Xlinker", "-T", "-Xlinker", &script] {
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}
