//! Half precision, both formats, single and in pairs: every result is rounded once.

use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::isa::float32::{greater, lesser};
use crate::sim::isa::rounding::{
    BF16, F16, Format, Mode, NAN16, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16,
    fma_to_odd, round_to, saturate,
};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;

/// The two 16-bit formats.
trait Half {
    fn widen(bits: u16) -> f32;
    fn narrow(x: f32) -> u16;
    fn narrow_wide(x: f64) -> u16;
    const FORMAT: Format;
}

struct Ieee;
struct Brain;

impl Half for Ieee {
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f16_to_f32(bits)
    }
    #[inline(always)]
    fn narrow(x: f32) -> u16 {
        f32_to_f16(x)
    }
    #[inline(always)]
    fn narrow_wide(x: f64) -> u16 {
        f64_to_f16(x, Mode::Nearest)
    }
    const FORMAT: Format = F16;
}

impl Half for Brain {
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        bf16_to_f32(bits)
    }
    #[inline(always)]
    fn narrow(x: f32) -> u16 {
        f32_to_bf16(x)
    }
    #[inline(always)]
    fn narrow_wide(x: f64) -> u16 {
        f64_to_bf16(x, Mode::Nearest)
    }
    const FORMAT: Format = BF16;
}

/// f32 has more than twice the precision plus two bits, so that rounding its sum again cannot show.
#[inline(always)]
fn add<H: Half>(a: u16, b: u16) -> u16 {
    H::narrow(H::widen(a) + H::widen(b))
}

#[inline(always)]
fn sub<H: Half>(a: u16, b: u16) -> u16 {
    H::narrow(H::widen(a) - H::widen(b))
}

#[inline(always)]
fn mul<H: Half>(a: u16, b: u16) -> u16 {
    let product = f64::from(H::widen(a)) * f64::from(H::widen(b));
    H::narrow(round_to(product, H::FORMAT, Mode::Nearest) as f32)
}

#[inline(always)]
fn fma<H: Half>(a: u16, b: u16, c: u16) -> u16 {
    H::narrow_wide(fma_to_odd(f64::from(H::widen(a)), f64::from(H::widen(b)), f64::from(H::widen(c))))
}

#[inline(always)]
fn min<H: Half>(a: u16, b: u16) -> u16 {
    H::narrow(lesser(H::widen(a), H::widen(b)))
}

#[inline(always)]
fn max<H: Half>(a: u16, b: u16) -> u16 {
    H::narrow(greater(H::widen(a), H::widen(b)))
}

#[inline(always)]
fn is_nan<H: Half>(a: u16) -> bool {
    H::widen(a).is_nan()
}

#[inline(always)]
fn sat<H: Half>(a: u16) -> u16 {
    H::narrow(saturate(H::widen(a)))
}

/// Negative numbers become 0; NaN stays.
#[inline(always)]
fn relu<H: Half>(a: u16) -> u16 {
    let value = H::widen(a);
    if value.is_nan() {
        NAN16
    } else if value > 0.0 {
        a
    } else {
        0
    }
}

/// Subnormal numbers of the format become 0.
#[inline(always)]
fn ftz(a: u16) -> u16 {
    if a & 0x7C00 == 0 { a & 0x8000 } else { a }
}

#[inline(always)]
fn pair2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

#[inline(always)]
fn pair3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16, c as u16))
        | u32::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16)) << 16
}

/// One operation in both formats, single and in pairs; `seldom` is handed on.
macro_rules! formats {
    ($ty:expr; $H:ident; $($seldom:ident)? |$a:ident, $b:ident| $body:expr) => {
        match $ty {
            Type::F16 => {
                type $H = Ieee;
                alu!($($seldom)? |$a: u16, $b: u16| -> u16 { $body })
            }
            Type::Bf16 => {
                type $H = Brain;
                alu!($($seldom)? |$a: u16, $b: u16| -> u16 { $body })
            }
            Type::F16x2 => {
                type $H = Ieee;
                alu!($($seldom)? |a: u32, b: u32| -> u32 { pair2(a, b, |$a, $b| $body) })
            }
            Type::Bf16x2 => {
                type $H = Brain;
                alu!($($seldom)? |a: u32, b: u32| -> u32 { pair2(a, b, |$a, $b| $body) })
            }
            _ => return None,
        }
    };
    ($ty:expr; $H:ident; $($seldom:ident)? |$a:ident, $b:ident, $c:ident| $body:expr) => {
        match $ty {
            Type::F16 => {
                type $H = Ieee;
                alu!($($seldom)? |$a: u16, $b: u16, $c: u16| -> u16 { $body })
            }
            Type::Bf16 => {
                type $H = Brain;
                alu!($($seldom)? |$a: u16, $b: u16, $c: u16| -> u16 { $body })
            }
            Type::F16x2 => {
                type $H = Ieee;
                alu!($($seldom)? |a: u32, b: u32, c: u32| -> u32 { pair3(a, b, c, |$a, $b, $c| $body) })
            }
            Type::Bf16x2 => {
                type $H = Brain;
                alu!($($seldom)? |a: u32, b: u32, c: u32| -> u32 { pair3(a, b, c, |$a, $b, $c| $body) })
            }
            _ => return None,
        }
    };
}

pub(super) fn lookup(op: &mut Opcode<'_>) -> Option<(Alu, InstructionClass)> {
    let [ty] = *op.types.as_slice() else { return None };
    if !matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2) {
        return None;
    }
    let flushes = op.take("ftz");
    if flushes && !matches!(ty, Type::F16 | Type::F16x2) {
        return None;
    }
    let alu = match op.name {
        "add" | "sub" | "mul" | "fma" => arithmetic(op, ty, flushes)?,
        "min" | "max" => {
            let keep_nan = op.take("NaN");
            if op.take("xorsign") {
                return op.take("abs").then(|| signed_extremum(op.name, ty, keep_nan, flushes)).flatten();
            }
            match (op.name, keep_nan, flushes) {
                ("min", false, false) => formats!(ty; H; |a, b| min::<H>(a, b)),
                ("max", false, false) => formats!(ty; H; |a, b| max::<H>(a, b)),
                ("min", true, false) => {
                    formats!(ty; H; |a, b| if is_nan::<H>(a) || is_nan::<H>(b) { NAN16 } else { min::<H>(a, b) })
                }
                ("max", true, false) => {
                    formats!(ty; H; |a, b| if is_nan::<H>(a) || is_nan::<H>(b) { NAN16 } else { max::<H>(a, b) })
                }
                ("min", false, true) => formats!(ty; H; seldom |a, b| min::<H>(ftz(a), ftz(b))),
                ("max", false, true) => formats!(ty; H; seldom |a, b| max::<H>(ftz(a), ftz(b))),
                _ => return None,
            }
        }
        "neg" | "abs" if flushes => return None,
        "neg" => match ty {
            Type::F16 => alu!(|a: u16| -> u16 { one_nan(a, a ^ 0x8000, 0x7C00) }),
            Type::Bf16 => alu!(|a: u16| -> u16 { one_nan(a, a ^ 0x8000, 0x7F80) }),
            Type::F16x2 => alu!(|a: u32| -> u32 { each_half(a, |a| one_nan(a, a ^ 0x8000, 0x7C00)) }),
            _ => alu!(|a: u32| -> u32 { each_half(a, |a| one_nan(a, a ^ 0x8000, 0x7F80)) }),
        },
        "abs" => match ty {
            Type::F16 => alu!(|a: u16| -> u16 { one_nan(a, a & 0x7FFF, 0x7C00) }),
            Type::Bf16 => alu!(|a: u16| -> u16 { one_nan(a, a & 0x7FFF, 0x7F80) }),
            Type::F16x2 => alu!(|a: u32| -> u32 { each_half(a, |a| one_nan(a, a & 0x7FFF, 0x7C00)) }),
            _ => alu!(|a: u32| -> u32 { each_half(a, |a| one_nan(a, a & 0x7FFF, 0x7F80)) }),
        },
        _ => return None,
    };
    Some((alu, InstructionClass::Half))
}

/// The extremum of the magnitudes with the product of the signs.
fn signed_extremum(name: &str, ty: Type, keep_nan: bool, flushes: bool) -> Option<(Alu, InstructionClass)> {
    let alu = match (name, keep_nan, flushes) {
        ("min", false, false) => formats!(ty; H; seldom |a, b| xor_sign(a, b, min::<H>(a & 0x7FFF, b & 0x7FFF))),
        ("max", false, false) => formats!(ty; H; seldom |a, b| xor_sign(a, b, max::<H>(a & 0x7FFF, b & 0x7FFF))),
        ("min", true, false) => {
            formats!(ty; H; seldom |a, b| if is_nan::<H>(a) || is_nan::<H>(b) { NAN16 } else { xor_sign(a, b, min::<H>(a & 0x7FFF, b & 0x7FFF)) })
        }
        ("max", true, false) => {
            formats!(ty; H; seldom |a, b| if is_nan::<H>(a) || is_nan::<H>(b) { NAN16 } else { xor_sign(a, b, max::<H>(a & 0x7FFF, b & 0x7FFF)) })
        }
        _ => return None,
    };
    Some((alu, InstructionClass::Half))
}

#[inline(always)]
fn xor_sign(a: u16, b: u16, magnitude: u16) -> u16 {
    if magnitude == NAN16 { magnitude } else { magnitude | (a ^ b) & 0x8000 }
}

/// The one NaN of 16 bits instead of a result of a NaN; `infinity` are the bits of infinity.
#[inline(always)]
fn one_nan(a: u16, result: u16, infinity: u16) -> u16 {
    if a & 0x7FFF > infinity { NAN16 } else { result }
}

#[inline(always)]
fn each_half(pair: u32, f: impl Fn(u16) -> u16) -> u32 {
    u32::from(f(pair as u16)) | u32::from(f((pair >> 16) as u16)) << 16
}

fn arithmetic(op: &mut Opcode<'_>, ty: Type, flushes: bool) -> Option<Alu> {
    op.take("rn");
    let (saturates, rectifies) = (op.take("sat"), op.take("relu"));
    Some(match (op.name, saturates, rectifies, flushes) {
        ("add", false, false, false) => formats!(ty; H; |a, b| add::<H>(a, b)),
        ("sub", false, false, false) => formats!(ty; H; |a, b| sub::<H>(a, b)),
        ("mul", false, false, false) => formats!(ty; H; |a, b| mul::<H>(a, b)),
        ("fma", false, false, false) => formats!(ty; H; |a, b, c| fma::<H>(a, b, c)),
        ("add", true, false, false) => formats!(ty; H; seldom |a, b| sat::<H>(add::<H>(a, b))),
        ("sub", true, false, false) => formats!(ty; H; seldom |a, b| sat::<H>(sub::<H>(a, b))),
        ("mul", true, false, false) => formats!(ty; H; seldom |a, b| sat::<H>(mul::<H>(a, b))),
        ("fma", true, false, false) => formats!(ty; H; seldom |a, b, c| sat::<H>(fma::<H>(a, b, c))),
        ("fma", false, true, false) => formats!(ty; H; seldom |a, b, c| relu::<H>(fma::<H>(a, b, c))),
        ("add", false, false, true) => formats!(ty; H; seldom |a, b| ftz(add::<H>(ftz(a), ftz(b)))),
        ("sub", false, false, true) => formats!(ty; H; seldom |a, b| ftz(sub::<H>(ftz(a), ftz(b)))),
        ("mul", false, false, true) => formats!(ty; H; seldom |a, b| ftz(mul::<H>(ftz(a), ftz(b)))),
        ("fma", false, false, true) => formats!(ty; H; seldom |a, b, c| ftz(fma::<H>(ftz(a), ftz(b), ftz(c)))),
        ("add", true, false, true) => formats!(ty; H; seldom |a, b| ftz(sat::<H>(add::<H>(ftz(a), ftz(b))))),
        ("sub", true, false, true) => formats!(ty; H; seldom |a, b| ftz(sat::<H>(sub::<H>(ftz(a), ftz(b))))),
        ("mul", true, false, true) => formats!(ty; H; seldom |a, b| ftz(sat::<H>(mul::<H>(ftz(a), ftz(b))))),
        ("fma", true, false, true) => formats!(ty; H; seldom |a, b, c| ftz(sat::<H>(fma::<H>(ftz(a), ftz(b), ftz(c))))),
        ("fma", false, true, true) => {
            formats!(ty; H; seldom |a, b, c| ftz(relu::<H>(fma::<H>(ftz(a), ftz(b), ftz(c)))))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0x3C00, 0x1000, 0x3C00)] // 1 + 2^-11: a tie, to even
    #[case(0x3C01, 0x1000, 0x3C02)] // the odd neighbour goes up
    #[case(0x7BFF, 0x4C00, 0x7C00)] // 65504 + 16 overflows
    #[case(0x7C00, 0xFC00, 0x7FFF)] // inf - inf
    #[case(0x8000, 0x0000, 0x0000)] // -0 + 0
    #[case(0x0001, 0x0001, 0x0002)] // subnormal
    fn sums(#[case] a: u16, #[case] b: u16, #[case] expected: u16) {
        assert_eq!(add::<Ieee>(a, b), expected);
    }

    #[test]
    fn a_product_and_sum_are_rounded_once() {
        // 1.0009766² + 2^-24: the product lies just below a tie, the grain lifts it over; rounding through f32 or twice
        // loses that.
        let exact = |a: u16, b: u16, c: u16| {
            let (a, b, c) = (f64::from(f16_to_f32(a)), f64::from(f16_to_f32(b)), f64::from(f16_to_f32(c)));
            f64_to_f16(a.mul_add(b, c), Mode::Nearest)
        };
        let mut rng = crate::sim::rng::Rng::new(5);
        for _ in 0..100_000 {
            let draw = |bits: u64| (bits as u16 & 0x83FF) | 0x3800 | ((bits >> 20) as u16 & 0x0400);
            let (a, b, c) = (draw(rng.next()), draw(rng.next()), draw(rng.next()));
            // All three within a factor of four: f64 holds the sum exactly.
            assert_eq!(fma::<Ieee>(a, b, c), exact(a, b, c));
        }
        assert_eq!(fma::<Ieee>(0x6801, 0x3C00, 0x0001), 0x6801);
    }

    #[test]
    fn pairs_work_on_both_halves() {
        assert_eq!(pair2(0x3C00_4000, 0x4000_3C00, add::<Ieee>), 0x4200_4200);
    }
}
