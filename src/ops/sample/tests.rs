//! Ways to draw that are nearly right, and each must be found.

use super::*;
use crate::core::candidate::Cpu;
use crate::ops::agreement::rejects;
use rstest::rstest;

/// A candidate that draws by `choose`.
fn drawing(choose: impl Fn(&[f32], &Rule, u32) -> usize + Clone + Send + Sync + 'static) -> Cpu<Draw> {
    Cpu::new::<f32>(move |s: &Draw, inputs, outputs| each_row::<f32>(s, inputs, outputs, choose.clone()))
}

fn larger_k(rule: &Rule) -> Rule {
    Rule { top_k: if rule.top_k == 0 { 0 } else { rule.top_k + 1 }, ..*rule }
}

/// Another choice than the right one.
type Wrong = fn(&[f32], &Rule, u32) -> usize;

const WRONG: [(&str, Wrong); 15] = [
    ("one token too many", |x, rule, number| draw(x, &larger_k(rule), number)),
    ("any token", |x, rule, number| draw(x, &Rule { top_k: 0, ..*rule }, number)),
    ("any share", |x, rule, number| draw(x, &Rule { top_p_micro: MICRO, ..*rule }, number)),
    ("a share of all", |x, rule, number| {
        let all = Rule { top_k: 0, ..*rule };
        if rule.top_p_micro < MICRO { draw(x, &all, number) } else { draw(x, rule, number) }
    }),
    ("any temperature", |x, rule, number| draw(x, &Rule { temperature_micro: MICRO, ..*rule }, number)),
    ("a temperature that is a factor", |x, rule, number| {
        let temperature_micro = MICRO * MICRO / rule.temperature_micro;
        draw(x, &Rule { temperature_micro, ..*rule }, number)
    }),
    ("the next token", |x, rule, number| (draw(x, rule, number) + 1).min(x.len() - 1)),
    ("the token before", |x, rule, number| draw(x, rule, number).saturating_sub(1)),
    ("a sum without the token itself", |x, rule, number| {
        let token = draw(x, rule, number);
        (token + 1..x.len()).find(|&other| x[other] >= x[token]).unwrap_or(token)
    }),
    ("whatever the number", |x, rule, _| draw(x, rule, DRAWS as u32 / 2)),
    ("the most likely", |x, rule, _| draw(x, &Rule { top_p_micro: 0, ..*rule }, 0)),
    ("the number from the other end", |x, rule, number| draw(x, rule, DRAWS as u32 - 1 - number)),
    ("a number of half width", |x, rule, number| draw(x, rule, number & !0xfffff)),
    ("the most likely first", |x, rule, number| {
        let mut order: Vec<usize> = (0..x.len()).filter(|&token| !x[token].is_nan()).collect();
        order.sort_by(|&a, &b| x[b].total_cmp(&x[a]));
        let sorted: Vec<f32> = order.iter().map(|&token| x[token]).collect();
        if sorted.is_empty() { 0 } else { order[draw(&sorted, rule, number)] }
    }),
    ("nan as the largest", |x, rule, number| {
        x.iter().position(|x| x.is_nan()).unwrap_or_else(|| draw(x, rule, number))
    }),
];

#[rstest]
fn what_is_drawn_wrongly_is_found(#[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)] at: usize) {
    rejects(operator(), drawing(WRONG[at].1));
}

#[test]
fn the_numbers_of_another_position_are_found() {
    let wrong = Cpu::new::<f32>(|s: &Draw, inputs, outputs| {
        let numbers = &inputs.slice::<i32>(1)[..s.rows];
        let rows = inputs.slice::<f32>(0).chunks_exact(s.cols);
        for ((y, row), number) in outputs.slice::<i32>(0).iter_mut().zip(rows).zip(numbers) {
            *y = draw(row, &s.rule(), number.cast_unsigned()) as i32;
        }
    });
    rejects(operator(), wrong);
}

/// Weights in f32 and their sums in f64, another order of operations: what a careful kernel may do.
#[test]
fn other_roundings_are_right_as_well() {
    use crate::check::judge::judge_case;
    use crate::check::{Context, Subject, case::Case};
    use crate::core::candidate::IntoCandidate;
    use crate::core::distribution::Distribution;
    use crate::device::cpu::CpuDevice;
    let other = drawing(|x, rule, number| {
        let temperature = rule.temperature_micro as f32 / MICRO as f32;
        let most = x.iter().copied().fold(f32::NAN, f32::max);
        let weight = |x: f32| if x == most { 1.0 } else { f64::from(((x - most) / temperature).exp()) };
        let total: f64 = x.iter().map(|&x| weight(x)).filter(|w| !w.is_nan()).sum();
        let mut left = total * f64::from(number) / DRAWS as f64;
        x.iter()
            .position(|&x| {
                left -= if x.is_nan() { 0.0 } else { weight(x) };
                left < 0.0
            })
            .unwrap_or(0)
    });
    let (operator, candidate) = (operator(), other.named("other"));
    let device = CpuDevice::new();
    let context = Context::new(&device, 1, std::time::Duration::from_secs(60));
    let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
    // Tens of thousands of tokens with about the same share: boundaries are everywhere.
    for (rows, cols, temperature) in [(256, 64, 1.0), (16, 16_384, 1.0), (4, 100_000, 50.0)] {
        let point = crate::core::shape::Shape::to_point(&case(rows, cols, 1.0, 0, temperature));
        for seed in 0..4 {
            let judged = judge_case(&context, &subject, &Case::new(point.clone(), Distribution::Normal, seed));
            assert!(judged.is_ok(), "{judged:#?}");
        }
    }
}
