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
        match &self.candidate_on_cpu(operator, dtype)?.body {
            Body::Cpu(body) => Ok(body.clone()),
            _ => Err(missing(operator, dtype, "on the CPU")),
        }
    }

    /// The same with its name.
    pub fn candidate_on_cpu(&self, operator: &str, dtype: DType) -> Result<&Candidate, Error> {
        let last = self.candidates(operator, dtype)?.rfind(|candidate| candidate.body.is_host());
        last.ok_or_else(|| missing(operator, dtype, "on the CPU"))
    }

    /// The fastest kernel of the crate's own for an architecture: the last one that runs there.
    pub fn on_gpu(&self, operator: &str, dtype: DType, arch: &str) -> Result<Kernel, Error> {
        match &self.candidate_on_gpu(operator, dtype, arch)?.body {
            Body::Cuda(kernel) => Ok(kernel.clone()),
            _ => Err(missing(operator, dtype, &format!("for {arch}"))),
        }
    }

    /// The same with its name.
    pub fn candidate_on_gpu(&self, operator: &str, dtype: DType, arch: &str) -> Result<&Candidate, Error> {
        let is_own = |candidate: &&Candidate| {
            let Body::Cuda(kernel) = &candidate.body else { return false };
            kernel.program.language == Language::Cuda && kernel.program.runs_on(arch)
        };
        let last = self.candidates(operator, dtype)?.rfind(is_own);
        last.ok_or_else(|| missing(operator, dtype, &format!("for {arch}")))
    }

    /// A library, where the catalogue has one that computes this; else the fastest kernel of the crate's own.
    pub fn candidate_by_library(&self, operator: &str, dtype: DType, arch: &str) -> Result<&Candidate, Error> {
        let library = self.candidates(operator, dtype)?.find(|candidate| candidate.body.is_library());
        library.map_or_else(|| self.candidate_on_gpu(operator, dtype, arch), Ok)
    }

    /// A kernel of Triton's, where the catalogue has one; else the fastest of the crate's own.
    pub fn by_triton(&self, operator: &str, dtype: DType, arch: &str) -> Result<Kernel, Error> {
        let triton = self.candidates(operator, dtype)?.find_map(|candidate| match &candidate.body {
            Body::Cuda(kernel) if candidate.name == "triton" => Some(kernel.clone()),
            _ => None,
        });
        triton.map_or_else(|| self.on_gpu(operator, dtype, arch), Ok)
    }

    /// The code of [`Operators::candidate_by_library`].
    pub fn by_library(&self, operator: &str, dtype: DType, arch: &str) -> Result<Body, Error> {
        Ok(self.candidate_by_library(operator, dtype, arch)?.body.clone())
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
