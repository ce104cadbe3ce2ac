//! The committed PTX of the catalogue and of the models on it: a file a kernel source, made from the sources as they are.

use kernelgate::core::candidate::{Body, Language};
use kernelgate::device::dependent::objections;
use kernelgate::models::suites;
use kernelgate::ops::catalogue;
use kernelgate::prelude::*;
use kernelgate::toolchain::committed::{ARCH, Committed, FOLDER};
use kernelgate::toolchain::{Error, compile_ptx_afresh};
use std::path::Path;

const HOW_TO_RENEW: &str = "renew them with `cargo test --release --test gate -- --ptx`";

fn committed() -> Committed {
    Committed::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER))
}

#[test]
fn every_kernel_is_there_as_its_source_is_now() {
    let stale = committed().stale(&[catalogue(), suites()].concat()).unwrap();
    assert!(stale.is_empty(), "{FOLDER}: {stale:#?}\n{HOW_TO_RENEW}");
}

#[test]
fn the_compiler_would_make_it_again() {
    let suites = catalogue();
    let mut kernels = suites[0].candidates.iter().filter_map(|candidate| match &candidate.body {
        Body::Cuda(kernel) if kernel.program.language == Language::Cuda => Some(kernel),
        _ => None,
    });
    let program = &kernels.next_back().expect("a kernel").program;
    let kept = committed().find(program, BF16).expect("its PTX");
    match compile_ptx_afresh(program, BF16, ARCH) {
        // Another version of the compiler makes another text, and that is no fault of the files.
        Ok(made) if made.compiler == kept.compiler => assert!(made == kept, "{}: {HOW_TO_RENEW}", program.file),
        Ok(_) | Err(Error::NoCompiler(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_folder_of_a_machine_is_in_them() {
    for (name, text) in committed().texts().expect("packed texts") {
        let absolute = text.lines().find(|line| line.starts_with(".file") && line.contains("\"/"));
        assert_eq!(absolute, None, "{name}");
    }
}

#[test]
fn no_load_overtakes_the_wait_for_the_launch_ahead() {
    let mut waiting = 0;
    for (name, text) in committed().texts().expect("packed texts") {
        waiting += text.matches("griddepcontrol.wait").count();
        let waits =
            |entry: &str| text.split(".entry ").any(|e| e.starts_with(entry) && e.contains("griddepcontrol.wait"));
        let overtaken: Vec<_> = objections(&text).into_iter().filter(|(entry, _)| waits(entry)).collect();
        assert!(overtaken.is_empty(), "{name}: {overtaken:?}: read through `behind_wait` (kernels/lib/dependent.cuh)");
    }
    assert!(waiting > 20, "{waiting} kernels wait");
}
