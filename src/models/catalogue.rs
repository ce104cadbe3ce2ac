//! Which candidate of the catalogue computes a step: the only place that looks for one.

use super::error::Error;
use crate::core::candidate::{Body, Candidate, CpuBody, Kernel, Language};
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::suite::Suite;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The operators of a model, with their candidates.
pub struct Operators(BTreeMap<String, Suite>);

impl Operators {
    /// Those of the catalogue.
    pub fn new() -> Self {
        Operators(crate::ops::catalogue().into_iter().map(|suite| (suite.operator.name().to_owned(), suite)).collect())
    }

    fn suite(&self, operator: &str) -> Result<&Suite, Error> {
        self.0
            .get(operator)
            .ok_or_else(|| Error::input(format!("operator `{operator}`"), "it in the catalogue", "no such operator"))
    }

    /// What is computed.
    pub fn operator(&self, operator: &str) -> Result<Arc<dyn Operator>, Error> {
        Ok(Arc::clone(&self.suite(operator)?.operator))
    }

    /// The fastest candidate on the CPU: the last tier.
    pub fn on_cpu(&self, operator: &str, dtype: DType) -> Result<CpuBody, Error> {
        let last = self.candidates(operator, dtype)?.rev().find_map(|candidate| match &candidate.body {
            Body::Cpu(body) => Some(body.clone()),
            _ => None,
        });
        last.ok_or_else(|| missing(operator, dtype, "on the CPU"))
    }

    /// The fastest kernel of the crate's own for an architecture: the last one that runs there.
    pub fn on_gpu(&self, operator: &str, dtype: DType, arch: &str) -> Result<Kernel, Error> {
        let last = self.candidates(operator, dtype)?.rev().find_map(|candidate| match &candidate.body {
            Body::Cuda(kernel) if kernel.program.language == Language::Cuda && kernel.program.runs_on(arch) => {
                Some(kernel.clone())
            }
            _ => None,
        });
        last.ok_or_else(|| missing(operator, dtype, &format!("for {arch}")))
    }

    fn candidates(&self, operator: &str, dtype: DType) -> Result<impl DoubleEndedIterator<Item = &Candidate>, Error> {
        let all = self.suite(operator)?.candidates.iter();
        Ok(all.filter(move |candidate| candidate.traits.computes(dtype)))
    }
}

fn missing(operator: &str, dtype: DType, place: &str) -> Error {
    Error::input(format!("operator `{operator}`"), format!("a candidate for {dtype} {place}"), "none")
}
