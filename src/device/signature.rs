//! Launches held against the signatures of kernels: a wrong argument list is an error, not undefined behaviour.

use super::fault::Fault;
use std::fmt::Display;

/// Holds the sizes of an entry's parameters against the arguments of a launch.
///
/// # Errors
/// [`Fault::Signature`] where they differ.
pub fn fits(name: &str, parameters: &[usize], arguments: &[Vec<u8>]) -> Result<(), Fault> {
    let passed: Vec<usize> = arguments.iter().map(Vec::len).collect();
    if parameters == passed {
        return Ok(());
    }
    let first = parameters.iter().zip(&passed).position(|(a, b)| a != b).unwrap_or(parameters.len().min(passed.len()));
    Err(Fault::Signature(format!(
        "`{name}` takes {} parameters of {parameters:?} bytes, the launch passes {} of {passed:?} (inputs, outputs, \
         workspace, then what the launch adds, in order); they part at number {}",
        parameters.len(),
        passed.len(),
        first + 1
    )))
}

/// The fault of a program that has no such entry.
pub fn no_entry(file: &str, name: &str) -> Fault {
    Fault::Signature(format!("{file} has no entry `{name}`; is it `extern \"C\" __global__`?"))
}

/// The fault of a block that the entry cannot run.
pub fn wrong_block(name: &str, threads: usize, most: usize) -> Fault {
    Fault::Signature(format!("a block of {threads} threads; `{name}` can run 1 to {most}"))
}

/// The fault of a launch that asks for more dynamic shared memory than a block of the entry can have.
pub fn too_much_shared(name: &str, dynamic_bytes: usize, why: impl Display) -> Fault {
    Fault::Signature(format!(
        "`{name}` cannot have {dynamic_bytes} bytes of dynamic shared memory beside its own: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(&[8, 8, 4], true)]
    #[case(&[8, 8, 8], false)]
    #[case(&[8, 8], false)]
    #[case(&[8, 8, 4, 4], false)]
    fn a_wrong_signature_is_told(#[case] parameters: &[usize], #[case] right: bool) {
        let arguments = [vec![0; 8], vec![0; 8], vec![0; 4]];
        assert_eq!(fits("k", parameters, &arguments).is_ok(), right);
    }
}
