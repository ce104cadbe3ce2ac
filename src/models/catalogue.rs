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

    /// A kernel of Triton's, where the catalogue has one; else the fastest of the crate's own.
    pub fn by_triton(&self, operator: &str, dtype: DType, arch: &str) -> Result<Kernel, Error> {
        let triton = self.candidates(operator, dtype)?.find_map(|candidate| match &candidate.body {
            Body::Cuda(kernel) if candidate.name == "triton" => Some(kernel.clone()),
            _ => None,
        });
        triton.map_or_else(|| self.on_gpu(operator, dtype, arch), Ok)
    }

    /// A library, where the catalogue has one that computes this; else the fastest kernel of the crate's own.
    pub fn by_library(&self, operator: &str, dtype: DType, arch: &str) -> Result<Body, Error> {
        let mut bodies = self.candidates(operator, dtype)?.map(|candidate| &candidate.body);
        let library = bodies.find(|body| body.is_library()).cloned();
        library.map_or_else(|| self.on_gpu(operator, dtype, arch).map(Body::Cuda), Ok)
    }

    /// The kernel that is there to be read: the first.
    pub fn naive_on_gpu(&self, operator: &str, dtype: DType) -> Result<Kernel, Error> {
        let first = self.candidates(operator, dtype)?.find_map(|candidate| match &candidate.body {
            Body::Cuda(kernel) => Some(kernel.clone()),
            _ => None,
        });
        first.ok_or_else(|| missing(operator, dtype, "on a GPU"))
    }

    /// A tier on the CPU by its name, where the catalogue has one of that name.
    pub fn named_on_cpu(&self, operator: &str, dtype: DType, name: &str) -> Result<Option<CpuBody>, Error> {
        Ok(self.candidates(operator, dtype)?.find_map(|candidate| match &candidate.body {
            Body::Cpu(body) if candidate.name == name => Some(body.clone()),
            _ => None,
        }))
    }

    fn candidates(&self, operator: &str, dtype: DType) -> Result<impl DoubleEndedIterator<Item = &Candidate>, Error> {
        let all = self.suite(operator)?.candidates.iter();
        Ok(all.filter(move |candidate| candidate.traits.computes(dtype)))
    }
}

fn missing(operator: &str, dtype: DType, place: &str) -> Error {
    Error::input(format!("operator `{operator}`"), format!("a candidate for {dtype} {place}"), "none")
}
