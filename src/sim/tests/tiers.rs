//! All builds of a handler give the same bits.

use crate::sim::ir::program::{Exec, Instr};
use crate::sim::isa::lane_wise;
use crate::sim::machine::registers::{Class, Guard, LANES, Registers, Row};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::rng::Rng;
use rstest::rstest;

/// Bits that are corners of some type: zeros, one, infinities, NaN, denormals, the ends of the integers, ties of f16.
const CORNERS: [u64; 12] = [
    0,
    1,
    0x8000_0000,
    0x7FFF_FFFF,
    0x3F80_0000,
    0x7F80_0000_FF80_0000,
    0x7FC1_2345,
    0x0080_0000_807F_FFFF,
    0x3F80_1000_3F80_3000,
    0x7FF0_0000_0000_0000,
    0x000F_FFFF_FFFF_FFFF,
    u64::MAX,
];

/// Rows of corners in every combination of two operands, then of random bits.
fn operand(rng: &mut Rng, round: usize, place: usize) -> [u64; LANES] {
    std::array::from_fn(|lane| match round {
        0..5 => CORNERS[(round * LANES + lane) / [1, CORNERS.len(), 5][place] % CORNERS.len()],
        _ => rng.next(),
    })
}

fn run(
    handler: fn(&mut Registers, &Instr, u32),
    sources: [&[u64; LANES]; 3],
    classes: &[Class],
    mask: u32,
) -> Vec<u64> {
    let mut registers =
        Registers { words: vec![Row::splat(7); 4], wides: vec![Row::splat(7); 4], preds: vec![0x5A5A_5A5A; 4] };
    for ((class, source), slot) in classes.iter().zip(sources).zip(1..) {
        match class {
            Class::Word => registers.words[slot].0 = source.map(|bits| bits as u32),
            Class::Wide => registers.wides[slot].0 = *source,
            Class::Pred => registers.preds[slot] = source[0] as u32,
        }
    }
    let instr = Instr { exec: Exec::Exit, guard: Guard::ALWAYS, d: 0, a: 1, b: 2, c: 3, x: 0, straight: 0 };
    handler(&mut registers, &instr, mask);
    let words = registers.words[0].0.map(u64::from);
    words.into_iter().chain(registers.wides[0].0).chain([u64::from(registers.preds[0])]).collect()
}

#[rstest]
fn all_builds_give_the_same_bits(
    #[values(
        "add.s32",
        "sub.sat.s32",
        "mul.lo.s32",
        "mul.hi.s64",
        "mad.wide.u32",
        "div.s32",
        "rem.u64",
        "min.s16",
        "sad.u32",
        "abs.s64",
        "and.b32",
        "not.b64",
        "shl.b32",
        "shr.s64",
        "popc.b32",
        "clz.b64",
        "brev.b32",
        "bfind.s32",
        "prmt.b32",
        "shf.l.wrap.b32",
        "add.f32",
        "add.ftz.f32",
        "sub.rz.f32",
        "mul.f32",
        "mul.rm.ftz.f32",
        "fma.rn.f32",
        "fma.rp.f32",
        "fma.rn.ftz.sat.f32",
        "div.rn.f32",
        "rcp.rn.f32",
        "sqrt.rm.f32",
        "min.f32",
        "max.NaN.f32",
        "abs.f32",
        "neg.f32",
        "copysign.f32",
        "add.f64",
        "mul.rn.f64",
        "fma.rn.f64",
        "div.rn.f64",
        "sqrt.rn.f64",
        "min.f64",
        "add.f16",
        "fma.rn.f16",
        "fma.rn.f16x2",
        "mul.bf16x2",
        "fma.rn.bf16",
        "max.f16x2",
        "ex2.approx.f32",
        "ex2.approx.ftz.f32",
        "lg2.approx.f32",
        "rcp.approx.f32",
        "rsqrt.approx.f32",
        "sqrt.approx.f32",
        "sin.approx.f32",
        "cos.approx.f32",
        "tanh.approx.f32",
        "div.full.f32",
        "cvt.rn.f16.f32",
        "cvt.rn.bf16.f32",
        "cvt.f32.f16",
        "cvt.rzi.s32.f32",
        "cvt.rni.ftz.s32.f32",
        "cvt.rn.f32.s64",
        "cvt.rn.f32.f64",
        "cvt.f64.f32",
        "cvt.sat.u8.s32"
    )]
    text: &str,
) {
    let (alu, _) = lane_wise(&mut Opcode::new(text, 1)).unwrap_or_else(|error| panic!("{error}"));
    let mut rng = Rng::new(text.bytes().map(u64::from).sum());
    for round in 0..40 {
        let sources: [_; 3] = std::array::from_fn(|place| operand(&mut rng, round, place));
        let sources = sources.each_ref();
        let mask = if round % 2 == 0 { u32::MAX } else { rng.next() as u32 };
        let builds = [alu.handler.plain, alu.handler.narrower, alu.handler.widest];
        let results = builds.map(|handler| run(handler, sources, alu.sources, mask));
        assert_eq!(results[0], results[1], "AVX2, round {round}");
        assert_eq!(results[0], results[2], "the widest, round {round}");
    }
}
