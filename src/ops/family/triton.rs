//! Triton programs that were compiled ahead of time: which entry serves a shape, and how it is launched.

use crate::core::candidate::{Cuda, Declare, Text, TritonMetadata};
use crate::core::launch::{Launch, Scalar};
use crate::core::packed::text;
use crate::core::shape::Shape;
use crate::ops::family::elementwise::Vector;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What `kernels/triton/build.py` writes for an operator: the module, and the record that describes it.
#[derive(Clone, Copy)]
pub struct Built {
    /// The operator.
    pub op: &'static str,
    /// PTX with every entry, packed.
    packed: &'static [u8],
    /// The record, JSON.
    pub record: &'static str,
}

/// The files of an operator.
macro_rules! built {
    ($op:literal) => {
        $crate::ops::family::triton::Built::of(
            $op,
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/triton/ptx/", $op, ".sm_80.ptx.xz")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/triton/ptx/", $op, ".sm_80.json")),
        )
    };
}
pub(crate) use built;

/// The record of a module.
#[derive(Debug, Deserialize)]
struct Record {
    entries: Vec<Entry>,
}

/// One entry: the extent that it serves, and its launch.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    name: String,
    dtype: String,
    /// The largest extent.
    up_to: usize,
    /// What divides the extents that rows of tensors have.
    divisor: usize,
    /// Rows, or elements of a vector, that one program takes.
    pub per_program: usize,
    warps: usize,
    shared_bytes: usize,
    /// What the program was compiled for.
    pub constants: BTreeMap<String, usize>,
}

/// The name of an entry without its dtype.
fn stem_of(entry: &Entry) -> &str {
    entry.name.trim_end_matches(&entry.dtype)
}

impl Entry {
    /// What Triton would say of the entry in any dtype.
    fn metadata(&self) -> TritonMetadata {
        TritonMetadata {
            name: format!("{}{{dtype}}", stem_of(self)),
            num_warps: self.warps,
            num_ctas: 1,
            shared_bytes: self.shared_bytes,
            // The pointers are there; these programs use neither.
            global_scratch_bytes: Some(0),
            profile_scratch_bytes: Some(0),
        }
    }
}

impl Built {
    /// The files of operator `op`.
    pub const fn of(op: &'static str, packed: &'static [u8], record: &'static str) -> Self {
        Built { op, packed, record }
    }

    /// The module, unpacked once a process.
    fn ptx(&self) -> &'static str {
        static MODULES: Mutex<BTreeMap<&str, &str>> = Mutex::new(BTreeMap::new());
        let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        let unpacked = || text(self.packed).expect("a test holds the file against its hash").leak();
        modules.entry(self.op).or_insert_with(|| unpacked())
    }

    /// The entries of one dtype, in the order to try them. Those of the others differ in their names, and some in the
    /// shared memory: the launch of all asks for what the greediest needs.
    fn entries(&self) -> Vec<Entry> {
        let record: Record = serde_json::from_str(self.record).expect("the record of a committed module");
        let shared = |stem: &str| {
            let same = record.entries.iter().filter(|entry| stem_of(entry) == stem);
            same.map(|entry| entry.shared_bytes).max().unwrap_or_default()
        };
        let first = record.entries.first().map(|entry| entry.dtype.as_str());
        let of_first = record.entries.iter().filter(|entry| Some(entry.dtype.as_str()) == first);
        of_first.map(|entry| Entry { shared_bytes: shared(stem_of(entry)), ..entry.clone() }).collect()
    }

    /// The candidate. `extent` decides between the entries, `row` is what must be a multiple of an entry's divisor,
    /// `programs` how many of an entry are launched; `scalars` are the arguments behind the tensors.
    pub fn candidate<S: Shape>(
        self,
        extent: impl Fn(&S) -> usize + Send + Sync + 'static,
        row: impl Fn(&S) -> usize + Send + Sync + 'static,
        programs: impl Fn(&S, &Entry) -> usize + Send + Sync + 'static,
        scalars: impl Fn(&S) -> Vec<Scalar> + Send + Sync + 'static,
    ) -> Cuda<S> {
        let entries = self.entries();
        let plan = move |s: &S| {
            let (extent, row) = (extent(s), row(s));
            let serves = |entry: &&Entry| extent <= entry.up_to && row.is_multiple_of(entry.divisor);
            let entry = entries.iter().find(serves).expect("an entry for the longest extent");
            let launch = Launch::programs([programs(s, entry), 1, 1]);
            entry.metadata().launch(scalars(s).into_iter().fold(launch, Launch::scalar))
        };
        Cuda::ptx(Text::of(move || self.ptx().into()), self.op, plan)
            .file(format!("kernels/triton/ptx/{}.sm_80.ptx", self.op))
    }

    /// The candidate of an operator over rows: `extents` are rows and columns.
    pub fn over_rows<S: Shape>(
        self,
        extents: fn(&S) -> (usize, usize),
        scalars: impl Fn(&S) -> Vec<Scalar> + Send + Sync + 'static,
    ) -> Cuda<S> {
        let columns = move |s: &S| extents(s).1;
        let kernel = self.candidate(columns, columns, move |s, e| extents(s).0.div_ceil(e.per_program), scalars);
        let sizes = [16, 64, 256, 1024, 2048, 4096, 8192, 32_768];
        sizes.into_iter().fold(kernel.tile("rows", 16), |kernel, columns| kernel.tile("cols", columns))
    }

    /// The candidate of an activation.
    pub fn over_elements(self) -> Cuda<Vector> {
        let programs = |s: &Vector, entry: &Entry| s.n.div_ceil(entry.per_program);
        let kernel = self.candidate(|s: &Vector| s.n, |s| s.n, programs, |s| vec![Scalar::I64(s.n as i64)]);
        kernel.tiles([("n", 16), ("n", 1024)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::recipe::hash;
    use rstest::rstest;
    use std::path::Path;

    const HOW_TO_RENEW: &str = "renew it with `python kernels/triton/build.py`, whose first line says what it needs";

    #[rstest]
    #[case(built!("gelu"))]
    #[case(built!("silu"))]
    #[case(built!("relu"))]
    #[case(built!("softmax"))]
    #[case(built!("layernorm"))]
    #[case(built!("layernorm_gelu"))]
    #[case(built!("gemm"))]
    #[case(built!("attention"))]
    fn a_module_is_what_its_sources_make(#[case] built: Built) {
        let record: serde_json::Value = serde_json::from_str(built.record).unwrap();
        let names = record["sources"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/triton");
        let sources: Vec<Vec<u8>> =
            names.chain(["build.py"]).map(|name| std::fs::read(folder.join(name)).unwrap()).collect();
        let parts: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        assert_eq!(record["source_hash"], hash(&parts), "{} was not made from its sources: {HOW_TO_RENEW}", built.op);
        assert_eq!(record["ptx_hash"], hash(&[built.ptx().as_bytes()]), "{} was changed: {HOW_TO_RENEW}", built.op);
        assert_eq!((&record["format"], record["operator"].as_str()), (&serde_json::json!(1), Some(built.op)));
    }

    #[rstest]
    #[case(built!("gelu"))]
    #[case(built!("softmax"))]
    #[case(built!("layernorm_gelu"))]
    #[case(built!("gemm"))]
    #[case(built!("attention"))]
    fn every_dtype_has_the_same_entries(#[case] built: Built) {
        let record: Record = serde_json::from_str(built.record).unwrap();
        let ptx = built.ptx();
        for entry in &record.entries {
            let of_first = built.entries();
            let same = of_first.iter().find(|other| stem_of(other) == stem_of(entry)).unwrap();
            let launch = |entry: &Entry| (entry.per_program, entry.warps, entry.up_to, entry.divisor);
            assert_eq!(launch(entry), launch(same), "{}", entry.name);
            assert!(entry.shared_bytes <= same.shared_bytes, "{}", entry.name);
            assert!(ptx.contains(&format!(".entry {}(", entry.name)), "{}", entry.name);
        }
    }
}
