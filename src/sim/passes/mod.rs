//! From the syntax tree of an entry to its program: one pass a file, [`lower`] is their order.
//!
//! 1. [`inline`]: calls become the bodies of device functions.
//! 2. [`gather`]: loads of shared memory that go together move up to the first of them.
//! 3. [`registers`]: a slot for each virtual register.
//! 4. [`group_fences`]: which products of warp groups need a fence before them.
//! 5. [`select`]: a handler for each instruction.
//! 6. [`stretches`]: straight stretches of operations on registers.
//! 7. [`reach`]: which parameters memory is read and written through.
//! 8. [`steering`]: what decides where lanes go.

mod gather;
mod group_fences;
mod inline;
mod reach;
mod registers;
mod select;
mod steering;
mod stretches;

use super::error::{Error, Result};
use super::ir::emitter::{Emitted, Emitter, Start};
use super::ir::functions::Functions;
use super::ir::layout::Layout;
use super::ir::program::Program;
use super::ptx::ast::{Function, Module};

/// The program of an entry.
///
/// With `adversarial`, every approximate operation is followed by a seeded error within its documented bound.
pub(super) fn lower(module: &Module, function: &Function, adversarial: bool) -> Result<Program> {
    let Some(body) = &function.body else {
        return Err(Error::Launch(format!("`{}` is declared, but has no body", function.name)));
    };
    if let Some(error) = &function.broken {
        return Err(error.clone());
    }
    let functions = Functions::new(module);
    let body = inline::inlined(&functions, function, body)?;
    let body = &*gather::gathered(body);
    let assignment = registers::assign(body);
    let exposed_products = group_fences::exposed(body);
    let layout = Layout::new(module, function, body, &functions)?;
    let start = Start { module, functions, function, body, layout, assignment, exposed_products, adversarial };
    let mut emitter = Emitter::new(start);
    let starts = select::select(&mut emitter)?;
    let Emitted { mut program, slots, in_rows } = emitter.finish(&starts)?;
    stretches::mark(&mut program.code, &in_rows, body.labels.iter().map(|at| starts[*at] as usize));
    (program.read, program.written) = reach::reach(body);
    program.steering = steering::steering(body, &slots, &starts);
    Ok(program)
}
