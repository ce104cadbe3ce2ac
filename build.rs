//! Tells the crate how far it is optimised: the simulator and the references are the slow parts of a gate.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=KERNELGATE_OPT_LEVEL={level}");
}
