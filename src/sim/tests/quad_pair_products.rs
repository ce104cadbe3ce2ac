//! The four products of `mma.m8n8k4` against plain sums, laid out as the manual describes it.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::tests::{kernel, read_words, run, words};
use half::f16;
use rstest::rstest;

/// What stands at (row, column) of a factor of a product: a small integer.
fn value(product: usize, row: usize, column: usize, seed: usize) -> i32 {
    ((product * 5 + row * 3 + column * 7 + seed) % 9) as i32 - 4
}

fn pair(low: i32, high: i32) -> u32 {
    let bits = |value: i32| u32::from(f16::from_f32(value as f32).to_bits());
    bits(low) | bits(high) << 16
}

/// Row and column of a sum in single precision.
fn single_at(lane: usize, i: usize) -> (usize, usize) {
    let x = (lane & 0b1) + (i & 0b10);
    (if lane < 16 { x } else { x + 4 }, (i & 0b100) + (lane & 0b10) + (i & 0b1))
}

fn half_at(lane: usize, i: usize) -> (usize, usize) {
    (if lane < 16 { lane % 4 } else { lane % 4 + 4 }, i)
}

#[rstest]
fn four_products_at_once(
    #[values("row", "col")] a: &str,
    #[values("row", "col")] b: &str,
    #[values("f16", "f32")] sum: &str,
) {
    let mut input = Vec::new();
    for lane in 0..32 {
        // Lanes 0 to 3 and 16 to 19 make the first product, and so on.
        let product = lane / 4 % 4;
        let upper = if lane < 16 { 0 } else { 4 };
        let of_a = |i: usize| {
            let (row, column) = if a == "row" { (lane % 4 + upper, i) } else { (i + upper, lane % 4) };
            value(product, row, column, 1)
        };
        let of_b = |i: usize| {
            let (row, column) = if b == "row" { (lane % 4, i + upper) } else { (i, lane % 4 + upper) };
            value(product, row, column, 2)
        };
        input.extend([pair(of_a(0), of_a(1)), pair(of_a(2), of_a(3)), pair(of_b(0), of_b(1)), pair(of_b(2), of_b(3))]);
    }
    let count = if sum == "f16" { 4 } else { 8 };
    let start = vec![if sum == "f16" { "0x44004400" } else { "0x40800000" }; count].join(",");
    let d: Vec<String> = (0..count).map(|at| format!("%r{}", 10 + at)).collect();
    let mut body = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd2, %r0, 16, %rd0; mad.wide.u32 %rd3, %r0, 32, %rd1; ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd2];\n\
         mma.sync.aligned.m8n8k4.{a}.{b}.{sum}.f16.f16.{sum} {{{}}}, {{%r1, %r2}}, {{%r3, %r4}}, {{{start}}};",
        d.join(",")
    );
    (0..count).for_each(|at| body += &format!("st.global.u32 [%rd3+{}], %r{};", 4 * at, 10 + at));
    let module = kernel(2, &body);
    let mut memory = Memory::new();
    let (from, to) = (words(&mut memory, &input), words(&mut memory, &[0; 256]));
    let report = run(&module, &Launch::new("k", 1, 32).arg(from).arg(to), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    let found = read_words(&memory, to, 256);
    for lane in 0..32 {
        for i in 0..8 {
            let ((row, column), found) = if sum == "f16" {
                let word = found[8 * lane + i / 2] >> (16 * (i % 2));
                (half_at(lane, i), f16::from_bits(word as u16).to_f32())
            } else {
                (single_at(lane, i), f32::from_bits(found[8 * lane + i]))
            };
            let product = lane / 4 % 4;
            let expected = 4 + (0..4).map(|k| value(product, row, k, 1) * value(product, k, column, 2)).sum::<i32>();
            assert_eq!(found, expected as f32, "product {product}, row {row}, column {column}");
        }
    }
}
