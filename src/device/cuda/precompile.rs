//! Fills the kernel cache for machines that have no compiler.

use super::compile::compile;
use super::device::support;
use crate::core::candidate::{Body, Language, Program};
use crate::core::dtype::DType;
use crate::core::suite::Suite;
use crate::device::fault::Fault;
use crate::device::recipe::{Target, key};
use std::collections::HashSet;
use std::sync::Arc;

/// Every CUDA program that the suites launch, in every dtype it runs in, and the gate's own, once each.
pub fn programs(suites: &[Suite]) -> Vec<(Program, DType)> {
    let mut seen = HashSet::new();
    let mut all = vec![(support(), DType::F32)];
    for suite in suites {
        for candidate in &suite.candidates {
            let Body::Cuda(kernel) = &candidate.body else { continue };
            let launches = suite.operator.shapes().iter().flat_map(|point| kernel.plan(point).0);
            let further: HashSet<Arc<Program>> = launches.filter_map(|launch| launch.program).collect();
            for dtype in suite.dtypes_of(candidate) {
                all.push((kernel.program.clone(), dtype));
                all.extend(further.iter().map(|program| (Program::clone(program), dtype)));
            }
        }
    }
    all.retain(|(program, dtype)| {
        program.language == Language::Cuda && seen.insert(key(program, *dtype, &Target::Cubin(String::new())))
    });
    all
}

/// Compiles them for each architecture (`sm_90a`) that they can run on into the cache, and returns how many there are.
///
/// # Errors
/// The first program that does not compile, by its file.
pub fn precompile(suites: &[Suite], archs: &[&str]) -> Result<usize, String> {
    let programs = programs(suites);
    let mut compiled = 0;
    for arch in archs {
        for (program, dtype) in programs.iter().filter(|(program, _)| program.runs_on(arch)) {
            let failed = |fault: Fault| format!("{} for {dtype} on {arch}: {fault}", program.file);
            compile(program, *dtype, &Target::Cubin((*arch).into())).map_err(failed)?;
            compiled += 1;
        }
    }
    Ok(compiled)
}
