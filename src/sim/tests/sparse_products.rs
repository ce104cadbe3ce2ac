//! Products with a sparse left factor against plain sums over its elements, laid out as the manual draws it.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::report::{Check, Report};
use crate::sim::tests::{kernel, read_words, run, words};
use rstest::rstest;

/// What stands at (row, k) of a factor: a small integer.
fn value(at: usize, k: usize, seed: usize, signed: bool) -> i32 {
    let size = (((at * 31 + k * 17 + seed * 7) * 2_654_435_761) >> 9) as i32 & 3;
    if signed && (at + k + seed).is_multiple_of(3) { -size } else { size }
}

/// Bits of an element of a type.
fn encoded(ty: &str, value: i32) -> u32 {
    match ty {
        "f16" => u32::from(half::f16::from_f32(value as f32).to_bits()),
        "bf16" => u32::from(half::bf16::from_f32(value as f32).to_bits()),
        "tf32" => (value as f32).to_bits(),
        "e4m3" => [0, 0x38, 0x40, 0x44][value.unsigned_abs() as usize] | if value < 0 { 0x80 } else { 0 },
        "e5m2" => [0, 0x3C, 0x40, 0x42][value.unsigned_abs() as usize] | if value < 0 { 0x80 } else { 0 },
        "s8" | "u8" => value as u32 & 0xFF,
        _ => value as u32 & 0xF,
    }
}

fn width_of(ty: &str) -> usize {
    match ty {
        "tf32" => 1,
        "f16" | "bf16" => 2,
        "s4" | "u4" => 8,
        _ => 4,
    }
}

/// The two places of a chunk that are kept, of four (or the first of them, of two).
fn kept(row: usize, chunk: usize) -> [usize; 2] {
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][(row * 5 + chunk * 7) % 6]
}

/// Where along k the stored element of a column stands.
fn place(ty: &str, row: usize, column: usize) -> usize {
    match width_of(ty) {
        1 => 2 * column + kept(row, column)[0] % 2,
        // Pairs of neighbours are kept together.
        8 => column / 4 * 8 + 2 * kept(row, column / 4)[column % 4 / 2] + column % 2,
        _ => column / 2 * 4 + kept(row, column / 2)[column % 2],
    }
}

/// Four bits of metadata.
fn nibble(ty: &str, row: usize, chunk: usize) -> u32 {
    let [first, second] = kept(row, chunk);
    if width_of(ty) == 1 { [0b0100, 0b1110][first % 2] } else { (first | second << 2) as u32 }
}

struct Case<'a> {
    k: usize,
    a: &'a str,
    b: &'a str,
    sum: &'a str,
    selector: usize,
}

/// Runs one product; `spoil` changes the metadata of the whole warp.
fn multiply(case: &Case<'_>, variant: &str, spoil: impl Fn(usize, u32) -> u32) -> (Vec<u32>, Report) {
    let (width, k) = (width_of(case.a), case.k);
    let registers = k / (4 * width);
    let signed = |ty: &str| !ty.starts_with('u');
    let mut input = Vec::new();
    for lane in 0..32 {
        let (group, quad) = (lane / 4, lane % 4);
        let field = |i: usize, bits: u32| bits << ((32 / width * i) % 32);
        for register in 0..registers {
            let (row, first) = (group + register % 2 * 8, register / 2 * 4 * width + quad * width);
            let element = |i: usize| encoded(case.a, value(row, place(case.a, row, first + i), 1, signed(case.a)));
            input.push((0..width).fold(0, |word, i| word | field(i, element(i))));
        }
        for register in 0..registers {
            let first = register * 4 * width + quad * width;
            let element = |i: usize| encoded(case.b, value(group, first + i, 2, signed(case.b)));
            input.push((0..width).fold(0, |word, i| word | field(i, element(i))));
        }
        // Metadata: who holds which chunks of which rows.
        let chunk_of = |row: usize, chunks: std::ops::Range<usize>| {
            chunks.enumerate().fold(0u32, |bits, (at, chunk)| bits | nibble(case.a, row, chunk) << (4 * at))
        };
        let (holders, word): (usize, Box<dyn Fn(usize) -> u32>) = match (width, k / width) {
            (1 | 2, 8) => (1, Box::new(|_| chunk_of(group, 0..4) | chunk_of(group + 8, 0..4) << 16)),
            (1 | 2, _) => {
                (2, Box::new(|at| chunk_of(group, 4 * at..4 * at + 4) | chunk_of(group + 8, 4 * at..4 * at + 4) << 16))
            }
            (_, 8) => (2, Box::new(|at| chunk_of(group + 8 * at, 0..8))),
            _ => (4, Box::new(|at| chunk_of(group + at % 2 * 8, at / 2 * 8..at / 2 * 8 + 8))),
        };
        let holds = quad / holders == case.selector;
        // Nobody may look at the others.
        input.push(spoil(lane, if holds { word(quad % holders) } else { 0 }));
    }
    let count = 2 * registers + 1;
    let list = |range: std::ops::Range<usize>| range.map(|at| format!("%r{at}")).collect::<Vec<_>>().join(",");
    let mut body = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, {}; add.s64 %rd3, %rd0, %rd2; mul.wide.u32 %rd4, %r0, 16; add.s64 %rd5, %rd1, %rd4;",
        4 * count
    );
    (0..count).for_each(|at| body += &format!("ld.global.u32 %r{}, [%rd3+{}];", at + 1, 4 * at));
    let sums = if case.sum == "f16" { 2 } else { 4 };
    // 8 everywhere.
    let start = match case.sum {
        "f16" => "0x48004800",
        "f32" => "0x41000000",
        _ => "8",
    };
    body += &format!(
        "mma.{variant}.sync.aligned.m16n8k{k}.row.col.{sum}.{}.{}.{sum} {{{}}}, {{{}}}, {{{}}}, {{{}}}, %r{count}, {};",
        case.a,
        case.b,
        list(20..20 + sums),
        list(1..registers + 1),
        list(registers + 1..2 * registers + 1),
        vec![start; sums].join(","),
        case.selector,
        sum = case.sum,
    );
    (0..sums).for_each(|at| body += &format!("st.global.u32 [%rd5+{}], %r{};", 4 * at, 20 + at));
    let module = kernel(2, &body);
    let mut memory = Memory::new();
    let (from, to) = (words(&mut memory, &input), words(&mut memory, &[0; 128]));
    let report = run(&module, &Launch::new("k", 1, 32).arg(from).arg(to), &mut memory);
    (read_words(&memory, to, 128), report)
}

#[rstest]
#[case("f16", "f16", "f32", 16, 0)]
#[case("f16", "f16", "f32", 16, 3)]
#[case("f16", "f16", "f16", 32, 0)]
#[case("bf16", "bf16", "f32", 32, 1)]
#[case("tf32", "tf32", "f32", 8, 2)]
#[case("tf32", "tf32", "f32", 16, 1)]
#[case("e4m3", "e5m2", "f32", 64, 0)]
#[case("u8", "s8", "s32", 32, 1)]
#[case("s8", "s8", "s32", 64, 0)]
#[case("s4", "u4", "s32", 64, 0)]
#[case("u4", "u4", "s32", 128, 0)]
fn products(#[case] a: &str, #[case] b: &str, #[case] sum: &str, #[case] k: usize, #[case] selector: usize) {
    let case = Case { k, a, b, sum, selector };
    for variant in ["sp", "sp::ordered_metadata"] {
        let (found, report) = multiply(&case, variant, |_, word| word);
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        for lane in 0..32 {
            for at in 0..4 {
                let (row, column) = (lane / 4 + at / 2 * 8, lane % 4 * 2 + at % 2);
                let product = |stored: usize| {
                    let k = place(a, row, stored);
                    value(row, k, 1, !a.starts_with('u')) * value(column, k, 2, !b.starts_with('u'))
                };
                let expected = 8 + (0..k / 2).map(product).sum::<i32>();
                let found = match sum {
                    "f16" => half::f16::from_bits((found[lane * 4 + at / 2] >> (16 * (at % 2))) as u16).to_f32(),
                    "f32" => f32::from_bits(found[lane * 4 + at]),
                    _ => found[lane * 4 + at] as i32 as f32,
                };
                assert_eq!(found, expected as f32, "row {row}, column {column}");
            }
        }
    }
}

#[test]
fn metadata_that_names_nothing_is_found() {
    let case = Case { k: 16, a: "f16", b: "f16", sum: "f32", selector: 1 };
    // One chunk of one row names one element twice.
    let (_, report) = multiply(&case, "sp", |lane, word| if lane == 9 { word & !0xF | 0b0101 } else { word });
    assert_eq!(report.findings[0].check, Check::Trap);
    assert!(report.findings[0].message.contains("chunk of row 2 is 0b0101"), "{}", report.findings[0]);
    // Two elements in falling order: only where order is promised.
    let falling = |lane: usize, word: u32| if lane == 9 { word & !0xF | 0b0010 } else { word };
    assert!(multiply(&case, "sp", falling).1.findings.is_empty());
    let (_, report) = multiply(&case, "sp::ordered_metadata", falling);
    assert!(report.findings[0].message.contains("in rising order"), "{}", report.findings[0]);
}

#[test]
fn another_selector_reads_other_threads() {
    let case = Case { k: 16, a: "f16", b: "f16", sum: "f32", selector: 1 };
    // What the selected threads hold goes to others: those hold nothing valid then.
    let (_, report) = multiply(&case, "sp", |lane, word| if lane % 4 == 1 { 0 } else { word });
    assert!(!report.findings.is_empty());
}

#[rstest]
#[case("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 4, "2", "below 2")]
#[case("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", 4, "1", "below 1")]
#[case("mma.sp.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32", 8, "0", "not modelled")]
fn what_no_device_has_is_refused(
    #[case] opcode: &str,
    #[case] count: usize,
    #[case] selector: &str,
    #[case] part: &str,
) {
    let list = vec!["%r1"; count].join(",");
    let module = kernel(
        0,
        &format!(
            "mov.u32 %r1, 0; {opcode} {{%r2,%r3,%r4,%r5}}, {{{list}}}, {{{list}}}, {{%r1,%r1,%r1,%r1}}, %r1, {selector};"
        ),
    );
    let error = module.check("k").unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}
