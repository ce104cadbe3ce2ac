//! `wmma`: products of whole matrices, by way of both memories and both orders.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::options::{Accumulation, Options};
use crate::sim::report::Check;
use crate::sim::run::launch;
use crate::sim::tests::{kernel, read_words, run, words};
use half::{bf16, f16};
use rstest::rstest;

const N: usize = 16;

fn small(row: usize, column: usize, salt: usize) -> f32 {
    ((row * 5 + column * 3 + salt) % 7) as f32 - 3.0
}

/// A matrix in 16 bits, two elements a word, with `pitch` elements from a row (or column) to the next.
fn packed(ty: &str, salt: usize, order: &str, pitch: usize) -> Vec<u32> {
    let mut halves = vec![0u16; N * pitch];
    for row in 0..N {
        for column in 0..N {
            let at = if order == "row" { row * pitch + column } else { column * pitch + row };
            let value = small(row, column, salt);
            halves[at] = if ty == "f16" { f16::from_f32(value).to_bits() } else { bf16::from_f32(value).to_bits() };
        }
    }
    halves.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16).collect()
}

fn list(kind: &str, range: std::ops::Range<usize>) -> String {
    range.map(|at| format!("%{kind}{at}")).collect::<Vec<_>>().join(",")
}

#[rstest]
fn products_are_those_of_the_matrices(
    #[values("row", "col")] a_order: &str,
    #[values("row", "col")] b_order: &str,
    #[values("row", "col")] d_order: &str,
    #[values("f16", "bf16")] ty: &str,
    #[values("", ".global")] space: &str,
    #[values(16, 24)] pitch: usize,
) {
    let count = if ty == "f16" { 8 } else { 4 };
    let (a, b) = (list("r", 0..count), list("r", 8..8 + count));
    let (c, d) = (list("f", 0..8), list("f", 0..8));
    let types = if ty == "f16" { "f32.f32".to_owned() } else { format!("f32.{ty}.{ty}.f32") };
    let module = kernel(
        3,
        &format!(
            "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; mov.u32 %r30, {pitch};\n\
             wmma.load.a.sync.aligned.{a_order}.m16n16k16{space}.{ty} {{{a}}}, [%rd0], %r30;\n\
             wmma.load.b.sync.aligned.{b_order}.m16n16k16{space}.{ty} {{{b}}}, [%rd1], %r30;\n\
             wmma.load.c.sync.aligned.{d_order}.m16n16k16{space}.f32 {{{c}}}, [%rd2], %r30;\n\
             wmma.mma.sync.aligned.{a_order}.{b_order}.m16n16k16.{types} {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}};\n\
             wmma.store.d.sync.aligned.{d_order}.m16n16k16{space}.f32 [%rd2], {{{d}}}, %r30;"
        ),
    );
    let mut memory = Memory::new();
    let left = words(&mut memory, &packed(ty, 1, a_order, pitch));
    let right = words(&mut memory, &packed(ty, 2, b_order, pitch));
    for accumulation in [Accumulation::Ascending, Accumulation::Shuffled] {
        let start: Vec<u32> = (0..N * pitch).map(|at| (at as f32).to_bits()).collect();
        let sums = words(&mut memory, &start);
        let options = Options { accumulation, seed: 3, ..Options::default() };
        let call = Launch::new("k", 1, 32).arg(left).arg(right).arg(sums);
        assert_eq!(launch(&module, &call, &mut memory, &options).unwrap().findings, []);
        let found = read_words(&memory, sums, N * pitch);
        for row in 0..N {
            for column in 0..N {
                let at = if d_order == "row" { row * pitch + column } else { column * pitch + row };
                let product: f32 = (0..N).map(|k| small(row, k, 1) * small(k, column, 2)).sum();
                assert_eq!(f32::from_bits(found[at]), at as f32 + product, "row {row} column {column}");
            }
        }
    }
}

#[test]
fn sums_in_sixteen_bits_go_through_shared_memory() {
    let sums = list("r", 20..24);
    let module = kernel(
        1,
        &format!(
            "ld.param.u64 %rd0, [p0]; mov.u32 %r30, dyn; mov.u32 %r31, 16;\n\
             wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{a}}}, [%rd0], %r31;\n\
             wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {{{b}}}, [%rd0], %r31;\n\
             mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;\n\
             wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16 {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};\n\
             wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%r30], {{{sums}}}, %r31;\n\
             bar.warp.sync -1; wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {{{sums}}}, [%r30], %r31;\n\
             wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd0], {{{sums}}}, %r31;",
            a = list("r", 0..8),
            b = list("r", 8..16),
        ),
    );
    let mut memory = Memory::new();
    let matrix = words(&mut memory, &packed("f16", 1, "row", N));
    let call = Launch::new("k", 1, 32).dynamic_shared(512).arg(matrix);
    assert_eq!(launch(&module, &call, &mut memory, &Options::default()).unwrap().findings, []);
    // The second factor is the first one, transposed.
    let expected = |row: usize, column: usize| (0..N).map(|k| small(row, k, 1) * small(column, k, 1)).sum::<f32>();
    for (at, word) in read_words(&memory, matrix, N * N / 2).into_iter().enumerate() {
        let (row, column) = (at * 2 / N, at * 2 % N);
        let halves = [word as u16, (word >> 16) as u16].map(|bits| f16::from_bits(bits).to_f32());
        assert_eq!(halves, [expected(row, column), expected(row, column + 1)], "row {row} column {column}");
    }
}

#[rstest]
#[case("[%rd0+16], 16", Check::Misaligned)]
#[case("[%rd0], 20", Check::Misaligned)]
#[case("[%rd0], 24", Check::OutOfBounds)]
fn where_a_matrix_may_not_lie(#[case] place: &str, #[case] check: Check) {
    let place = place.replace(", ", ", %r");
    let module = kernel(
        1,
        &format!(
            "ld.param.u64 %rd0, [p0]; mov.u32 %r16, 16; mov.u32 %r20, 20; mov.u32 %r24, 24;\n\
             wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{}}}, {place};",
            list("r", 0..8)
        ),
    );
    let mut memory = Memory::new();
    let matrix = words(&mut memory, &packed("f16", 1, "row", N));
    let report = launch(&module, &Launch::new("k", 1, 32).arg(matrix), &mut memory, &Options::default()).unwrap();
    assert_eq!(report.findings.first().map(|finding| finding.check), Some(check));
}

/// Bits of the elements, of a factor and of a sum.
fn widths(ty: &str) -> (u32, u32) {
    match ty {
        "f64" => (64, 64),
        "tf32" => (32, 32),
        "f16" | "bf16" => (16, 32),
        "u8" | "s8" => (8, 32),
        "u4" | "s4" => (4, 32),
        _ => (1, 32),
    }
}

/// A small number of a type as it lies in memory, and what it is.
fn element(ty: &str, outer: usize, inner: usize, salt: usize) -> (u64, i64) {
    let at = (outer * 5 + inner * 3 + salt) % 7;
    match ty {
        "f64" => ((at as f64 - 3.0).to_bits(), at as i64 - 3),
        "tf32" => (u64::from((at as f32 - 3.0).to_bits()), at as i64 - 3),
        "f16" => (u64::from(f16::from_f32(at as f32 - 3.0).to_bits()), at as i64 - 3),
        "bf16" => (u64::from(bf16::from_f32(at as f32 - 3.0).to_bits()), at as i64 - 3),
        "s8" => (u64::from((at as i8 - 3) as u8), at as i64 - 3),
        "s4" => (u64::from((at as i8 - 3) as u8 & 15), at as i64 - 3),
        "b1" => (at as u64 & 1, at as i64 & 1),
        _ => (at as u64, at as i64),
    }
}

/// Elements of `bits`, `outer` by `inner`; `along` whether those of one `outer` are neighbours.
fn laid_out(bits: u32, (outer, inner): (usize, usize), along: bool, of: impl Fn(usize, usize) -> u64) -> Vec<u32> {
    let mut bytes = vec![0u8; outer * inner * bits as usize / 8];
    for one in 0..outer {
        for other in 0..inner {
            let place = if along { one * inner + other } else { other * outer + one } * bits as usize;
            for bit in 0..bits as usize {
                bytes[(place + bit) / 8] |= ((of(one, other) >> bit & 1) as u8) << ((place + bit) % 8);
            }
        }
    }
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[rstest]
#[case::doubles("f64", "f64", [8, 8, 4], [1, 1, 2], ["row", "col"], "")]
#[case::doubles_across("f64", "f64", [8, 8, 4], [1, 1, 2], ["col", "row"], "")]
#[case::tf32("tf32", "f32", [16, 16, 8], [4, 4, 8], ["row", "col"], "")]
#[case::tf32_across("tf32", "f32", [16, 16, 8], [4, 4, 8], ["col", "row"], "")]
#[case::bytes("u8", "s32", [16, 16, 16], [2, 2, 8], ["row", "col"], "")]
#[case::signed_bytes("s8", "s32", [32, 8, 16], [4, 1, 8], ["col", "col"], "")]
#[case::wide_bytes("s8", "s32", [8, 32, 16], [1, 4, 8], ["row", "row"], ".satfinite")]
#[case::nibbles("u4", "s32", [8, 8, 32], [1, 1, 2], ["row", "col"], "")]
#[case::signed_nibbles("s4", "s32", [8, 8, 32], [1, 1, 2], ["row", "col"], "")]
#[case::bits("b1", "s32", [8, 8, 128], [1, 1, 2], ["row", "col"], "")]
#[case::tall("f16", "f32", [32, 8, 16], [8, 8, 8], ["row", "col"], "")]
#[case::wide("f16", "f32", [8, 32, 16], [8, 8, 8], ["col", "row"], "")]
#[case::tall_bf16("bf16", "f32", [32, 8, 16], [8, 2, 8], ["row", "col"], "")]
fn products_of_other_shapes(
    #[case] ty: &str,
    #[case] sum: &str,
    #[case] extents: [usize; 3],
    #[case] registers: [usize; 3],
    #[case] orders: [&str; 2],
    #[case] ending: &str,
) {
    let ([m, n, k], [of_a, of_b, of_sums], [a_order, b_order]) = (extents, registers, orders);
    let (bits, sum_bits) = widths(ty);
    let kinds = if ty == "f64" { ("rd", "rd") } else { ("r", if sum == "f32" { "f" } else { "r" }) };
    let (a, b) = (list(kinds.0, 3..3 + of_a), list(kinds.0, 11..11 + of_b));
    let sums = list(kinds.1, 19..19 + of_sums);
    let shape = format!("m{m}n{n}k{k}");
    let (join, types) = match ty {
        "b1" => (".xor.popc", "s32.b1.b1.s32".to_owned()),
        "f16" => ("", "f32.f32".to_owned()),
        _ => ("", format!("{sum}.{ty}.{ty}.{sum}")),
    };
    let mma = match join {
        "" => format!("wmma.mma.sync.aligned.{a_order}.{b_order}.{shape}.{types}{ending}"),
        _ => format!("wmma.mma{join}.sync.aligned.{a_order}.{b_order}.{shape}.{types}"),
    };
    let module = kernel(
        3,
        &format!(
            "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2];\n\
             wmma.load.a.sync.aligned.{a_order}.{shape}.{ty} {{{a}}}, [%rd0];\n\
             wmma.load.b.sync.aligned.{b_order}.{shape}.{ty} {{{b}}}, [%rd1];\n\
             wmma.load.c.sync.aligned.row.{shape}.{sum} {{{sums}}}, [%rd2];\n\
             {mma} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};\n\
             wmma.store.d.sync.aligned.row.{shape}.{sum} [%rd2], {{{sums}}};"
        ),
    );
    let start = |row: usize, column: usize| (row * n + column) as i64;
    let as_sum = |value: i64| match sum {
        "f64" => (value as f64).to_bits(),
        "f32" => u64::from((value as f32).to_bits()),
        _ => u64::from(value as i32 as u32),
    };
    let mut memory = Memory::new();
    let left = words(&mut memory, &laid_out(bits, (m, k), a_order == "row", |o, i| element(ty, o, i, 1).0));
    let right = words(&mut memory, &laid_out(bits, (n, k), b_order == "col", |o, i| element(ty, o, i, 2).0));
    let into = words(&mut memory, &laid_out(sum_bits, (m, n), true, |row, column| as_sum(start(row, column))));
    let report = run(&module, &Launch::new("k", 1, 32).arg(left).arg(right).arg(into), &mut memory);
    assert_eq!(report.findings, []);
    let expected = laid_out(sum_bits, (m, n), true, |row, column| {
        let pairs = (0..k).map(|at| (element(ty, row, at, 1).1, element(ty, column, at, 2).1));
        let join = |(a, b): (i64, i64)| if ty == "b1" { a ^ b } else { a * b };
        as_sum(start(row, column) + pairs.map(join).sum::<i64>())
    });
    assert_eq!(read_words(&memory, into, expected.len()), expected);
}
