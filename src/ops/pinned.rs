//! What each operator's declarations allow, pinned: depth and magnitude decide what is called wrong, and one that is too
//! generous accepts what it should not. A change here is a change of what the gate rejects.

use super::catalogue;
use crate::check::Subject;
use crate::check::case::Case;
use crate::check::compare::Expected;
use crate::check::judge::{Rejection, judge_of, values};
use crate::check::outcome::Errors;
use crate::check::reference::expected;
use crate::check::spread::{Spread, spread};
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::seed::DEFAULT_SEED;
use crate::core::shape::parse;
use crate::core::suite::Suite;
use crate::core::tensor::Tensor;
use crate::core::tolerance::ACCUMULATOR_EPSILON;
use std::sync::Arc;

/// Operator, shape, and in f32, as multiples of 2⁻²⁴ of the root mean square of the first output: what the median element
/// may be off by, and the largest root mean square of all errors together.
const PINNED: [(&str, &str, [f64; 2]); 33] = [
    ("add", "n=1025", [3.502e0, 9.469e-2]),
    ("relu", "n=1025", [4.387e-2, 2.353e-38]),
    ("gelu", "n=1025", [1.021e1, 3.657e-1]),
    ("gelu_tanh", "n=1025", [1.264e1, 2.086e-1]),
    ("silu", "n=1025", [5.997e0, 3.558e-2]),
    ("swiglu", "n=1025", [3.908e0, 4.325e-3]),
    ("layernorm", "rows=3,cols=1025,eps=1e-5", [1.871e2, 1.747e1]),
    ("layernorm_gelu", "rows=3,cols=1025,eps=1e-5", [4.437e2, 1.563e1]),
    ("rmsnorm", "rows=3,cols=1025,eps=1e-5", [6.786e1, 8.110e-2]),
    ("add_rmsnorm", "rows=3,cols=1025,eps=1e-5", [6.733e1, 2.296e-1]),
    ("softmax", "rows=3,cols=1025", [2.076e2, 1.269e1]),
    ("log_softmax", "rows=3,cols=1025", [5.633e1, 1.945e1]),
    ("row_sum", "rows=64,cols=4096", [1.311e4, 2.361e2]),
    ("row_mean", "rows=64,cols=4096", [1.223e4, 2.227e2]),
    ("rope", "tokens=2,heads=257,half=8", [6.435e0, 1.727e0]),
    ("rope_append", "batch=2,heads=32,kv_heads=4,half=32,past=3,spare=2", [9.589e-1, 9.786e-3]),
    ("gemm", "m=5,n=16,k=6152", [1.587e4, 2.831e2]),
    ("bmm", "batch=1,m=36,n=96,k=1024,transposed_a=true,transposed_b=true", [2.584e3, 1.463e2]),
    ("linear", "m=5,n=16,k=6152,activation=gelu_tanh,residual=true", [5.191e3, 5.716e1]),
    ("gemv", "batch=1,n=300,k=5632", [1.453e4, 3.472e2]),
    ("gemv_add", "batch=1,n=130,k=5632", [1.043e4, 2.919e2]),
    ("rmsnorm_swiglu", "batch=3,n=33,k=1024,eps=1e-5", [6.155e3, 4.951e1]),
    ("rmsnorm_qkv_rope", "batch=5,heads=1,kv_heads=1,half=8,k=2056,past=3,spare=2,eps=1e-5", [9.567e-1, 4.263e-2]),
    ("attention", "batch=1,heads=2,group=4,queries=1,keys=1025,dim=128,causal=true", [1.839e4, 5.984e2]),
    ("attention_decode", "batch=1,heads=1,group=5,queries=1,keys=4099,dim=120,causal=false", [6.440e4, 1.124e3]),
    ("attention_cached", "batch=1,heads=1,group=1,queries=1,past=257,dim=256", [7.686e3, 3.832e2]),
    ("attention_kvcache", "batch=1,heads=1,group=6,past=700,spare=2,dim=128", [1.283e4, 5.005e2]),
    ("attention_paged", "batch=1,heads=1,group=3,shortest=700,spread=0,page=16,pages=50,dim=128", [8.725e3, 3.583e2]),
    (
        "conv2d",
        "batch=3,channels=64,height=6,width=5,filters=32,tall=3,wide=3,stride=1,padding=1,dilation=2,layout=nhwc",
        [1.204e3, 7.324e1],
    ),
    ("conv2d_pool", "batch=2,channels=32,height=14,width=12,filters=64,taps=3,activation=relu", [7.255e2, 6.816e1]),
    (
        "max_pool2d",
        "batch=1,channels=7,height=3,width=700,tall=2,wide=2,stride=2,padding=0,layout=nhwc,activation=none",
        [1.608e0, 1.632e-2],
    ),
    ("lstm", "steps=4,batch=7,inputs=96,hidden=80,layers=2", [1.214e3, 5.347e1]),
    ("embedding", "vocab=1000,dim=64,ids=37", [1.012e0, 1.750e-2]),
];

/// How far the figures may be off: they are of one draw of the inputs.
const SLACK: f64 = 1.02;

/// A case in f32 with its reference.
struct Pinned<'a> {
    subject: Subject<'a>,
    case: Case,
    expected: Arc<Vec<Expected>>,
}

impl<'a> Pinned<'a> {
    fn of(suite: &'a Suite, shape: &str) -> Self {
        let operator = &*suite.operator;
        let subject = Subject { operator, candidate: &suite.candidates[0], dtype: DType::F32 };
        let point = parse(operator.axes(), shape).unwrap();
        let case = Case::new(point, Distribution::Normal, DEFAULT_SEED);
        let expected = expected(operator, &case.point, DType::F32, &case.inputs(&subject));
        Pinned { subject, case, expected }
    }

    /// The outputs where those of the first are off by what `error` says of their index.
    fn off_by(&self, error: impl Fn(usize) -> f64) -> Vec<Tensor> {
        let tensor = |(i, of): (usize, &Expected)| {
            let off = |(at, value): (usize, &f64)| value + if i == 0 { error(at) } else { 0.0 };
            let dims = self.subject.operator.output_dims(i, &self.case.point);
            Tensor::from_f64(DType::F32, &dims, &of.values.iter().enumerate().map(off).collect::<Vec<_>>())
        };
        self.expected.iter().enumerate().map(tensor).collect()
    }

    fn judged(&self, error: impl Fn(usize) -> f64) -> Result<Errors, Rejection> {
        values(&self.subject, &self.case, &self.off_by(error), &self.expected)
    }

    /// What element `at` of the first output may be off by.
    fn allowed(&self, at: usize) -> f64 {
        let first = &self.expected[0];
        judge_of(&self.subject, &self.case.point, 0).allowed(first.values[at], first.magnitudes[at])
    }

    /// The element with the median of that.
    fn median(&self) -> usize {
        let mut all: Vec<usize> = (0..self.expected[0].values.len()).collect();
        all.sort_by(|&a, &b| self.allowed(a).total_cmp(&self.allowed(b)));
        all[all.len() / 2]
    }

    /// The errors of the first output where all are `error` in size.
    fn spread(&self, error: f64) -> Spread {
        let axis = self.subject.operator.separable();
        let rows = axis.map_or(1, |axis| self.case.point[axis]);
        let got = self.off_by(|at| if at % 2 == 0 { error } else { -error });
        let judge = judge_of(&self.subject, &self.case.point, 0);
        spread(&got[0], &self.expected[0], &judge, DType::F32, rows).unwrap()
    }

    /// The size of errors, all the same, that is just accepted as a whole.
    fn whole(&self) -> f64 {
        let far = 1e3 * self.allowed(self.median());
        far / self.spread(far).of_typical
    }

    /// Both, as [`PINNED`] has them.
    fn figures(&self) -> [f64; 2] {
        let values = &self.expected[0].values;
        let size = (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt();
        [self.allowed(self.median()), self.whole()].map(|error| error / (ACCUMULATOR_EPSILON * size))
    }
}

fn each(mut check: impl FnMut(&str, &Pinned<'_>, [f64; 2])) {
    let all = catalogue();
    for (name, shape, figures) in PINNED {
        let suite = all.iter().find(|suite| suite.operator.name() == name).unwrap();
        check(name, &Pinned::of(suite, shape), figures);
    }
}

#[test]
fn every_operator_allows_what_is_pinned() {
    let mut wrong = Vec::new();
    each(|name, pinned, figures| {
        let found = pinned.figures();
        let is_close = |found: f64, pinned: f64| found <= SLACK * pinned && pinned <= SLACK * found;
        if !is_close(found[0], figures[0]) || !is_close(found[1], figures[1]) {
            wrong.push(format!("{name}: {:.3e} and {:.3e}, pinned {figures:?}", found[0], found[1]));
        }
    });
    let is_pinned = |name: &str| PINNED.iter().any(|(pinned, ..)| *pinned == name);
    let all = catalogue();
    // Integers are exact: nothing is allowed.
    let has_floats = |suite: &&Suite| !suite.operator.outputs()[0].dtype(DType::F32).is_integer();
    let names = all.iter().filter(has_floats).map(|suite| suite.operator.name());
    wrong.extend(names.filter(|name| !is_pinned(name)).map(|name| format!("{name}: not pinned")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn one_element_just_outside_is_wrong_and_half_of_it_is_not() {
    each(|name, pinned, _| {
        let (at, allowed) = (pinned.median(), pinned.allowed(pinned.median()));
        let judged = |size: f64| pinned.judged(|i| if i == at { size * allowed } else { 0.0 });
        let is_wrong =
            |judged: &Result<Errors, Rejection>| matches!(judged, Err(Rejection::Failed(f)) if f.check == "values");
        // Where one ulp is allowed, more than one and a half of it is the next value.
        assert!(is_wrong(&judged(1.6)), "{name}: {:?}", judged(1.6));
        // Half of it may still be too much for the outputs as a whole.
        assert!(!is_wrong(&judged(0.5)), "{name}: {:?}", judged(0.5));
    });
}

#[test]
fn errors_of_all_elements_just_outside_are_wrong_and_half_of_them_are_not() {
    each(|name, pinned, _| {
        let whole = pinned.whole();
        let judged = |size: f64| pinned.spread(size * whole).of_typical;
        assert!(judged(1.5) > 1.0 && judged(0.5) < 1.0, "{name}: {} and {}", judged(1.5), judged(0.5));
        // What the gate says of it.
        let outside = pinned.judged(|at| if at % 2 == 0 { 3.0 * whole } else { -3.0 * whole });
        let is_found = matches!(&outside, Err(Rejection::Failed(f)) if f.check == "spread" || f.check == "values");
        assert!(is_found, "{name}: {outside:?}");
    });
}

#[test]
#[ignore = "prints the table"]
fn figures() {
    let has_floats = |suite: &Suite| !suite.operator.outputs()[0].dtype(DType::F32).is_integer();
    for suite in catalogue().into_iter().filter(has_floats) {
        let operator = &*suite.operator;
        let fits = |p: &&crate::core::shape::Point| {
            let n: usize = operator.output_dims(0, p).iter().product();
            (64..=1 << 14).contains(&n) && operator.cost(p, DType::F32).flops < 1 << 24
        };
        let point =
            operator.shapes().iter().filter(fits).max_by(|a, b| operator.depth(a).total_cmp(&operator.depth(b)));
        let shape = crate::core::shape::describe(operator.axes(), point.unwrap());
        let [element, whole] = Pinned::of(&suite, &shape).figures();
        println!("    (\"{}\", \"{shape}\", [{element:.3e}, {whole:.3e}]),", operator.name());
    }
}
