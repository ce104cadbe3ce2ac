//! The gates of `examples/`, each of which could be the `tests/gate.rs` of a project, in one binary:
//! `cargo test --release --test examples -- example_argmax`.
#![expect(dead_code, reason = "each example has a main function of its own")]

use kernelgate::prelude::*;

#[path = "../examples/atomics.rs"]
mod atomics;
#[path = "../examples/elementwise.rs"]
mod elementwise;
#[path = "../examples/in_place.rs"]
mod in_place;
#[path = "../examples/index_outputs.rs"]
mod index_outputs;
#[path = "../examples/product.rs"]
mod product;
#[path = "../examples/quantise.rs"]
mod quantise;
#[path = "../examples/ragged.rs"]
mod ragged;
#[path = "../examples/reduction.rs"]
mod reduction;
#[path = "../examples/triton.rs"]
mod triton;
#[path = "../examples/workspace.rs"]
mod workspace;

fn main() -> ExitCode {
    let suites = [
        atomics::suite(),
        elementwise::suite(),
        in_place::suite(),
        index_outputs::suite(),
        product::suite(),
        quantise::suite(),
        ragged::suite(),
        reduction::suite(),
        triton::suite(),
        workspace::suite(),
    ];
    gate!().suites(suites).run()
}
