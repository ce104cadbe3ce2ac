//! CUDA kernels: where their code comes from, and what is launched.

use super::text::Text;
use crate::core::dtype::DType;
use crate::core::launch::{Launch, Plan};
use std::sync::Arc;

/// Scratch bytes at a point.
pub(super) type BytesFn = Arc<dyn Fn(&[usize]) -> usize + Send + Sync>;

/// Where the machine code of a CUDA candidate comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// CUDA C++ source, or PTX.
    pub text: Text,
    /// What `text` is.
    pub language: Language,
    /// The file name in compiler messages.
    pub file: String,
    /// Headers by the name that `#include` uses, besides the crate's own.
    pub headers: Vec<(String, String)>,
    /// Further compiler options.
    pub options: Vec<String>,
    /// The architecture that it is written for; `None` for all.
    pub needs: Option<String>,
}

impl Program {
    /// CUDA C++ in a file `k.cu` of its own, for tests.
    #[cfg(test)]
    pub fn of_cuda(text: &str) -> Self {
        Self {
            text: text.into(),
            language: Language::Cuda,
            file: "k.cu".into(),
            headers: Vec::new(),
            options: Vec::new(),
            needs: None,
        }
    }

    /// Whether it can run on a device of architecture `arch`: `sm_90` needs 9.0 or later, `sm_90a` exactly 9.0.
    pub fn runs_on(&self, arch: &str) -> bool {
        let Some(needs) = &self.needs else { return true };
        let number = |arch: &str| -> Option<u32> {
            let digits = arch.trim_start_matches("sm_").trim_start_matches("compute_");
            digits.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse().ok()
        };
        match (number(needs), number(arch)) {
            (Some(needed), Some(there)) if needs.ends_with(|c: char| c.is_ascii_digit()) => there >= needed,
            (needed, there) => needed.is_some() && needed == there,
        }
    }
}

/// The architecture that a PTX text names in its `.target`.
pub(super) fn target_of(ptx: &str) -> Option<String> {
    let rest = ptx.lines().find_map(|line| line.trim().strip_prefix(".target"))?;
    rest.split(',').map(str::trim).find(|word| word.starts_with("sm_")).map(str::to_owned)
}

/// The language of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Compiled by NVRTC, once a dtype, with `KERNELGATE_F32`, `KERNELGATE_F16` or `KERNELGATE_BF16` defined.
    Cuda,
    /// Taken as it is.
    Ptx,
}

pub(super) type PlanFn = Arc<dyn Fn(&[usize]) -> Plan + Send + Sync>;

/// The part of a CUDA candidate that a device needs.
#[derive(Clone)]
pub struct Kernel {
    /// The name of the candidate.
    pub candidate: String,
    /// Source or PTX.
    pub program: Program,
    /// The entry, perhaps with `{dtype}` in it.
    pub entry: String,
    pub(super) plan: PlanFn,
    pub(super) workspace_bytes: BytesFn,
}

impl Kernel {
    /// The launches at a point.
    pub fn plan(&self, point: &[usize]) -> Plan {
        (self.plan)(point)
    }

    /// Scratch bytes that it asks for at a point.
    pub fn workspace_bytes(&self, point: &[usize]) -> usize {
        (self.workspace_bytes)(point)
    }

    /// The entry that `launch` runs in a case of `dtype`.
    pub fn entry_of(&self, launch: &Launch, dtype: DType) -> String {
        launch.entry.as_ref().unwrap_or(&self.entry).replace("{dtype}", dtype.name())
    }
}
