//! The machinery that makes a scalar function into a 32-lane handler.

use crate::sim::ir::program::Instr;
use crate::sim::machine::registers::{Class, LANES, Registers};
use crate::sim::tier::Tiers;
use wide::i8x16;

/// A value of one lane, and how a row of them is read and written.
pub(crate) trait Lane: Copy {
    const CLASS: Class;
    /// A whole operand.
    type Source<'a>;
    /// A whole result, before the mask is applied.
    type Result;

    fn source(registers: &Registers, slot: u32) -> Self::Source<'_>;
    fn get(source: &Self::Source<'_>, lane: usize) -> Self;
    fn empty() -> Self::Result;
    fn put(result: &mut Self::Result, lane: usize, value: Self);
    fn commit(registers: &mut Registers, slot: u32, result: &Self::Result, mask: u32);
}

macro_rules! row_lane {
    ($($ty:ty, $bits:ty, $class:ident, $row:ident, $set:ident, $from:expr, $to:expr;)*) => {$(
        impl Lane for $ty {
            const CLASS: Class = Class::$class;
            type Source<'a> = &'a [$bits; LANES];
            type Result = [$bits; LANES];

            #[inline(always)]
            fn source(registers: &Registers, slot: u32) -> Self::Source<'_> {
                registers.$row(slot)
            }
            #[inline(always)]
            fn get(source: &Self::Source<'_>, lane: usize) -> Self {
                const FROM: fn($bits) -> $ty = $from;
                FROM(source[lane])
            }
            #[inline(always)]
            fn empty() -> Self::Result {
                [0; LANES]
            }
            #[inline(always)]
            fn put(result: &mut Self::Result, lane: usize, value: Self) {
                const TO: fn($ty) -> $bits = $to;
                result[lane] = TO(value);
            }
            #[inline(always)]
            fn commit(registers: &mut Registers, slot: u32, result: &Self::Result, mask: u32) {
                registers.$set(slot, result, mask);
            }
        }
    )*};
}

row_lane! {
    u8, u32, Word, word, set_word, |bits| bits as u8, u32::from;
    i8, u32, Word, word, set_word, |bits| bits as i8, |value| value as i32 as u32;
    u16, u32, Word, word, set_word, |bits| bits as u16, u32::from;
    i16, u32, Word, word, set_word, |bits| bits as i16, |value| value as i32 as u32;
    u32, u32, Word, word, set_word, |bits| bits, |value| value;
    i32, u32, Word, word, set_word, |bits| bits as i32, |value| value as u32;
    f32, u32, Word, word, set_word, f32::from_bits, f32::to_bits;
    u64, u64, Wide, wide, set_wide, |bits| bits, |value| value;
    i64, u64, Wide, wide, set_wide, |bits| bits as i64, |value| value as u64;
    f64, u64, Wide, wide, set_wide, f64::from_bits, f64::to_bits;
}

impl Lane for bool {
    const CLASS: Class = Class::Pred;
    type Source<'a> = u32;
    /// -1 where it holds.
    type Result = [i8; LANES];

    #[inline(always)]
    fn source(registers: &Registers, slot: u32) -> u32 {
        registers.preds[slot as usize]
    }
    #[inline(always)]
    fn get(source: &u32, lane: usize) -> bool {
        (source >> lane) & 1 != 0
    }
    #[inline(always)]
    fn empty() -> Self::Result {
        [0; LANES]
    }
    #[inline(always)]
    fn put(result: &mut Self::Result, lane: usize, value: bool) {
        result[lane] = -i8::from(value);
    }
    #[inline(always)]
    fn commit(registers: &mut Registers, slot: u32, result: &Self::Result, mask: u32) {
        registers.set_pred(slot, signs(result), mask);
    }
}

/// The signs of all lanes. Compilers do not find the instruction for it by themselves.
#[inline(always)]
fn signs(lanes: &[i8; LANES]) -> u32 {
    let (halves, _) = lanes.as_chunks();
    halves.iter().rev().fold(0, |bits, half| bits << 16 | i8x16::new(*half).to_bitmask())
}

/// A handler that touches registers only.
pub(crate) type AluFn = fn(&mut Registers, &Instr, u32);

/// A handler of instructions of one operation that follow each other.
pub(crate) type RunFn = fn(&mut Registers, &[Instr], u32);

/// A lane-wise operation with the classes of its operands.
#[derive(Clone, Copy)]
pub(crate) struct Alu {
    pub handler: Tiers<AluFn>,
    /// For operations that kernels repeat.
    pub run: Option<Tiers<RunFn>>,
    pub result: Class,
    pub sources: &'static [Class],
}

#[inline(always)]
pub(crate) fn map1<A: Lane, D: Lane>(registers: &mut Registers, instr: &Instr, mask: u32, op: impl Fn(A) -> D) {
    let mut result = D::empty();
    {
        let a = A::source(registers, instr.a);
        for lane in 0..LANES {
            D::put(&mut result, lane, op(A::get(&a, lane)));
        }
    }
    D::commit(registers, instr.d, &result, mask);
}

#[inline(always)]
pub(crate) fn map2<A: Lane, B: Lane, D: Lane>(
    registers: &mut Registers,
    instr: &Instr,
    mask: u32,
    op: impl Fn(A, B) -> D,
) {
    let mut result = D::empty();
    {
        let a = A::source(registers, instr.a);
        let b = B::source(registers, instr.b);
        for lane in 0..LANES {
            D::put(&mut result, lane, op(A::get(&a, lane), B::get(&b, lane)));
        }
    }
    D::commit(registers, instr.d, &result, mask);
}

#[inline(always)]
pub(crate) fn map3<A: Lane, B: Lane, C: Lane, D: Lane>(
    registers: &mut Registers,
    instr: &Instr,
    mask: u32,
    op: impl Fn(A, B, C) -> D,
) {
    let mut result = D::empty();
    {
        let a = A::source(registers, instr.a);
        let b = B::source(registers, instr.b);
        let c = C::source(registers, instr.c);
        for lane in 0..LANES {
            D::put(&mut result, lane, op(A::get(&a, lane), B::get(&b, lane), C::get(&c, lane)));
        }
    }
    D::commit(registers, instr.d, &result, mask);
}

/// A lane-wise operation from a scalar function: `alu!(|a: u32, b: u32| -> u32 { a.wrapping_add(b) })`; with `often` in
/// front for AVX-512 too, with `run` also one for several instructions in a row. With `seldom` the function is called for
/// one lane after the other, in one build for any machine: what no kernel does in its loops need not be vectorised for
/// minutes by whoever builds the crate.
macro_rules! alu {
    (seldom |$a:ident: $A:ty| -> $D:ty $body:block) => {{
        #[inline(never)]
        fn op($a: $A) -> $D $body
        $crate::sim::ir::lanes::alu!(@make seldom, map1, [$A], $D, op)
    }};
    (seldom |$a:ident: $A:ty, $b:ident: $B:ty| -> $D:ty $body:block) => {{
        #[inline(never)]
        fn op($a: $A, $b: $B) -> $D $body
        $crate::sim::ir::lanes::alu!(@make seldom, map2, [$A, $B], $D, op)
    }};
    (seldom |$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| -> $D:ty $body:block) => {{
        #[inline(never)]
        fn op($a: $A, $b: $B, $c: $C) -> $D $body
        $crate::sim::ir::lanes::alu!(@make seldom, map3, [$A, $B, $C], $D, op)
    }};
    (@make $($how:ident)?, $map:ident, [$($ty:ty),+], $out:ty, $op:path) => {{
        #[inline(always)]
        fn each(registers: &mut $crate::sim::machine::registers::Registers, instr: &$crate::sim::ir::program::Instr, mask: u32) {
            $crate::sim::ir::lanes::$map::<$($ty,)+ $out>(registers, instr, mask, $op);
        }
        $crate::sim::ir::lanes::Alu {
            handler: $crate::sim::tier::tiers!(
                $($how)? each: fn(r: &mut $crate::sim::machine::registers::Registers, i: &$crate::sim::ir::program::Instr, m: u32)
            ),
            run: None,
            result: <$out as $crate::sim::ir::lanes::Lane>::CLASS,
            sources: &[$(<$ty as $crate::sim::ir::lanes::Lane>::CLASS),+],
        }
    }};
    (@run $map:ident, [$($ty:ty),+], $out:ty, $op:path) => {{
        #[inline(always)]
        fn run(registers: &mut $crate::sim::machine::registers::Registers, instrs: &[$crate::sim::ir::program::Instr], mask: u32) {
            for instr in instrs {
                $crate::sim::ir::lanes::$map::<$($ty,)+ $out>(registers, instr, mask, $op);
            }
        }
        $crate::sim::ir::lanes::Alu {
            run: Some($crate::sim::tier::tiers!(
                often run: fn(r: &mut $crate::sim::machine::registers::Registers, i: &[$crate::sim::ir::program::Instr], m: u32)
            )),
            ..$crate::sim::ir::lanes::alu!(@make often, $map, [$($ty),+], $out, $op)
        }
    }};
    (run |$a:ident: $A:ty, $b:ident: $B:ty| -> $D:ty $body:block) => {{
        #[inline(always)]
        fn op($a: $A, $b: $B) -> $D $body
        $crate::sim::ir::lanes::alu!(@run map2, [$A, $B], $D, op)
    }};
    (run |$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| -> $D:ty $body:block) => {{
        #[inline(always)]
        fn op($a: $A, $b: $B, $c: $C) -> $D $body
        $crate::sim::ir::lanes::alu!(@run map3, [$A, $B, $C], $D, op)
    }};
    ($($often:ident)? |$a:ident: $A:ty| -> $D:ty $body:block) => {{
        #[inline(always)]
        fn op($a: $A) -> $D $body
        $crate::sim::ir::lanes::alu!(@make $($often)?, map1, [$A], $D, op)
    }};
    ($($often:ident)? |$a:ident: $A:ty, $b:ident: $B:ty| -> $D:ty $body:block) => {{
        #[inline(always)]
        fn op($a: $A, $b: $B) -> $D $body
        $crate::sim::ir::lanes::alu!(@make $($often)?, map2, [$A, $B], $D, op)
    }};
    ($($often:ident)? |$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| -> $D:ty $body:block) => {{
        #[inline(always)]
        fn op($a: $A, $b: $B, $c: $C) -> $D $body
        $crate::sim::ir::lanes::alu!(@make $($often)?, map3, [$A, $B, $C], $D, op)
    }};
}

/// One operation over several scalar types: `by_type!(ty; U32 => u32, U64 => u64; |a, b| a.wrapping_add(b))`.
macro_rules! by_type {
    ($ty:expr; $($pat:pat => $T:ty),+; |$a:ident| $body:expr) => {
        match $ty { $($pat => Some($crate::sim::ir::lanes::alu!(|$a: $T| -> $T { $body })),)+ _ => None }
    };
    ($ty:expr; $($pat:pat => $T:ty),+; $how:ident |$a:ident, $b:ident| $body:expr) => {
        match $ty { $($pat => Some($crate::sim::ir::lanes::alu!($how |$a: $T, $b: $T| -> $T { $body })),)+ _ => None }
    };
    ($ty:expr; $($pat:pat => $T:ty),+; |$a:ident, $b:ident| $body:expr) => {
        match $ty { $($pat => Some($crate::sim::ir::lanes::alu!(|$a: $T, $b: $T| -> $T { $body })),)+ _ => None }
    };
    ($ty:expr; $($pat:pat => $T:ty),+; |$a:ident, $b:ident, $c:ident| $body:expr) => {
        match $ty { $($pat => Some($crate::sim::ir::lanes::alu!(|$a: $T, $b: $T, $c: $T| -> $T { $body })),)+ _ => None }
    };
}

pub(crate) use {alu, by_type};
