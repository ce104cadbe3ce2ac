//! `wmma`: products of whole matrices, by way of both memories and both orders.

use super::{kernel, read_words, words};
use crate::sim::{Accumulation, Check, Launch, Memory, Options, launch};
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
