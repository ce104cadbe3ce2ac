//! Every entry of a compiled kernel is launched by a correctness case.

use crate::check::boundary::points;
use crate::core::candidate::{Body, Language};
use crate::core::dtype::DType;
use crate::core::seed::rng;
use crate::core::suite::Suite;
use crate::device::sim::{Committed, FOLDER};
use rstest::rstest;
use std::collections::{BTreeMap, BTreeSet};

/// By file and dtype: the entries that no case of a candidate launches.
fn without_a_case(suite: &Suite) -> BTreeMap<(String, DType), BTreeSet<String>> {
    let committed = Committed::new(format!("{}/{FOLDER}", env!("CARGO_MANIFEST_DIR")).into());
    let mut left: BTreeMap<(String, DType), BTreeSet<String>> = BTreeMap::new();
    let mut launched: BTreeMap<(String, DType), BTreeSet<String>> = BTreeMap::new();
    for candidate in &suite.candidates {
        let Body::Cuda(kernel) = &candidate.body else { continue };
        if kernel.program.language == Language::Ptx {
            continue;
        }
        let listed = suite.operator.shapes().iter().cloned();
        let cases: Vec<_> = listed.chain(points(&*suite.operator, &candidate.traits, 0, &mut rng(0))).collect();
        for dtype in suite.dtypes_of(candidate) {
            let key = (kernel.program.file.clone(), dtype);
            let ptx = committed.find(&kernel.program, dtype).expect("committed PTX");
            left.entry(key.clone()).or_default().extend(ptx.resources.into_iter().map(|of| of.entry));
            let launches = cases.iter().flat_map(|point| kernel.plan(point).0);
            launched.entry(key).or_default().extend(launches.map(|launch| kernel.entry_of(&launch, dtype)));
        }
    }
    for (key, entries) in &mut left {
        entries.retain(|entry| !launched[key].contains(entry));
    }
    left.retain(|_, entries| !entries.is_empty());
    left
}

#[rstest]
#[case::attention(crate::ops::attention::suite())]
#[case::attention_decode(crate::ops::attention_decode::suite())]
#[case::gemv(crate::ops::gemv::suite())]
#[case::gemm(crate::ops::gemm::suite())]
#[case::linear(crate::ops::linear::suite())]
#[case::bmm(crate::ops::bmm::suite())]
#[case::conv2d(crate::ops::conv2d::suite())]
#[case::lstm(crate::ops::lstm::suite())]
fn every_entry_has_a_case(#[case] suite: Suite) {
    let left = without_a_case(&suite);
    assert!(left.is_empty(), "{left:#?}");
}
