//! The operations whose values are compared with hardware, one by one.

/// The register kinds: a type, and how a 64-bit word becomes a register and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Half,
    Word,
    Wide,
    Single,
    Double,
    Pred,
}

impl Kind {
    fn from_letter(letter: char) -> Kind {
        match letter {
            'h' => Kind::Half,
            'w' => Kind::Word,
            'd' => Kind::Wide,
            'f' => Kind::Single,
            'g' => Kind::Double,
            'p' => Kind::Pred,
            other => panic!("`{other}` is no kind of register"),
        }
    }
}

/// How exactly the simulator must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    Bits,
    /// Within so many units in the last place of the format that the name ends with.
    Near,
}

#[derive(Debug, Clone)]
pub struct Operation {
    /// With modifiers and types; what stands after `|` follows the operands (`lop3`'s table).
    pub opcode: String,
    pub result: Kind,
    pub sources: Vec<Kind>,
    pub agreement: Agreement,
}

impl Operation {
    fn new(opcode: impl Into<String>, signature: &str, agreement: Agreement) -> Self {
        let (result, sources) = signature.split_once('<').expect("result<sources");
        Operation {
            opcode: opcode.into(),
            result: Kind::from_letter(result.chars().next().expect("a result")),
            sources: sources.chars().map(Kind::from_letter).collect(),
            agreement,
        }
    }

    /// Division by zero is undefined for integers.
    pub fn divides_integers(&self) -> bool {
        let float = self.opcode.ends_with("f32") || self.opcode.ends_with("f64");
        (self.opcode.starts_with("div") || self.opcode.starts_with("rem")) && !float
    }

    /// The instruction on registers `s0`, `s1`, … and `r`.
    pub fn instruction(&self) -> String {
        let (opcode, tail) = self.opcode.split_once('|').unwrap_or((&self.opcode, ""));
        let sources: Vec<String> = (0..self.sources.len()).map(|at| format!("%s{at}")).collect();
        format!("{opcode} %r, {}{tail};", sources.join(", "))
    }
}

/// All of them.
pub fn all() -> Vec<Operation> {
    let mut out = Vec::new();
    integers(&mut out);
    bits(&mut out);
    singles(&mut out);
    doubles(&mut out);
    halves(&mut out);
    comparisons(&mut out);
    conversions(&mut out);
    approximations(&mut out);
    out
}

fn exact(out: &mut Vec<Operation>, opcode: impl Into<String>, signature: &str) {
    out.push(Operation::new(opcode, signature, Agreement::Bits));
}

fn integers(out: &mut Vec<Operation>) {
    for (bits, letter) in [("16", 'h'), ("32", 'w'), ("64", 'd')] {
        let two = format!("{letter}<{letter}{letter}");
        let three = format!("{letter}<{letter}{letter}{letter}");
        for sign in ["u", "s"] {
            for name in ["add", "sub", "mul.lo", "mul.hi", "min", "max", "div", "rem"] {
                exact(out, format!("{name}.{sign}{bits}"), &two);
            }
            for name in ["mad.lo", "mad.hi", "sad"] {
                exact(out, format!("{name}.{sign}{bits}"), &three);
            }
        }
        for name in ["abs", "neg"] {
            exact(out, format!("{name}.s{bits}"), &format!("{letter}<{letter}"));
        }
    }
    for sign in ["u", "s"] {
        exact(out, format!("mul.wide.{sign}16"), "w<hh");
        exact(out, format!("mul.wide.{sign}32"), "d<ww");
        exact(out, format!("mad.wide.{sign}16"), "w<hhw");
        exact(out, format!("mad.wide.{sign}32"), "d<wwd");
        for part in ["lo", "hi"] {
            exact(out, format!("mul24.{part}.{sign}32"), "w<ww");
            exact(out, format!("mad24.{part}.{sign}32"), "w<www");
            for other in ["u", "s"] {
                exact(out, format!("dp2a.{part}.{sign}32.{other}32"), "w<www");
            }
        }
        for other in ["u", "s"] {
            exact(out, format!("dp4a.{sign}32.{other}32"), "w<www");
        }
    }
    exact(out, "add.sat.s32", "w<ww");
    exact(out, "sub.sat.s32", "w<ww");
}

fn bits(out: &mut Vec<Operation>) {
    for (size, letter) in [("16", 'h'), ("32", 'w'), ("64", 'd')] {
        for name in ["and", "or", "xor"] {
            exact(out, format!("{name}.b{size}"), &format!("{letter}<{letter}{letter}"));
        }
        for name in ["not", "cnot"] {
            exact(out, format!("{name}.b{size}"), &format!("{letter}<{letter}"));
        }
        for name in ["shl.b", "shr.u", "shr.s"] {
            exact(out, format!("{name}{size}"), &format!("{letter}<{letter}w"));
        }
    }
    for (size, letter) in [("32", 'w'), ("64", 'd')] {
        for name in ["popc", "clz"] {
            exact(out, format!("{name}.b{size}"), &format!("w<{letter}"));
        }
        exact(out, format!("brev.b{size}"), &format!("{letter}<{letter}"));
        exact(out, format!("bfi.b{size}"), &format!("{letter}<{letter}{letter}ww"));
        for sign in ["u", "s"] {
            exact(out, format!("bfe.{sign}{size}"), &format!("{letter}<{letter}ww"));
            exact(out, format!("bfind.{sign}{size}"), &format!("w<{letter}"));
            exact(out, format!("bfind.shiftamt.{sign}{size}"), &format!("w<{letter}"));
        }
    }
    for mode in ["clamp", "wrap"] {
        exact(out, format!("shf.l.{mode}.b32"), "w<www");
        exact(out, format!("shf.r.{mode}.b32"), "w<www");
        exact(out, format!("bmsk.{mode}.b32"), "w<ww");
        exact(out, format!("szext.{mode}.u32"), "w<ww");
        exact(out, format!("szext.{mode}.s32"), "w<ww");
    }
    for mode in ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"] {
        exact(out, format!("prmt.b32{mode}"), "w<www");
    }
    for table in [0x96, 0xE8, 0x1B] {
        exact(out, format!("lop3.b32|, {table}"), "w<www");
    }
}

fn singles(out: &mut Vec<Operation>) {
    for rounding in ["rn", "rz", "rm", "rp"] {
        for ftz in ["", ".ftz"] {
            for name in ["add", "sub", "mul", "div"] {
                exact(out, format!("{name}.{rounding}{ftz}.f32"), "f<ff");
            }
            exact(out, format!("fma.{rounding}{ftz}.f32"), "f<fff");
            for name in ["rcp", "sqrt"] {
                exact(out, format!("{name}.{rounding}{ftz}.f32"), "f<f");
            }
        }
    }
    for ftz in ["", ".ftz"] {
        exact(out, format!("add.rn{ftz}.sat.f32"), "f<ff");
        exact(out, format!("mul.rn{ftz}.sat.f32"), "f<ff");
        exact(out, format!("fma.rn{ftz}.sat.f32"), "f<fff");
        for name in ["min", "max"] {
            exact(out, format!("{name}{ftz}.f32"), "f<ff");
            exact(out, format!("{name}{ftz}.NaN.f32"), "f<ff");
        }
        for name in ["abs", "neg"] {
            exact(out, format!("{name}{ftz}.f32"), "f<f");
        }
    }
    exact(out, "copysign.f32", "f<ff");
}

fn doubles(out: &mut Vec<Operation>) {
    for rounding in ["rn", "rz", "rm", "rp"] {
        for name in ["add", "sub", "mul"] {
            exact(out, format!("{name}.{rounding}.f64"), "g<gg");
        }
    }
    for rounding in ["rn", "rz", "rm", "rp"] {
        exact(out, format!("fma.{rounding}.f64"), "g<ggg");
        exact(out, format!("div.{rounding}.f64"), "g<gg");
    }
    for name in ["rcp.rn", "rcp.rz", "rcp.rp", "sqrt.rn", "sqrt.rz", "sqrt.rp", "abs", "neg"] {
        exact(out, format!("{name}.f64"), "g<g");
    }
    for name in ["min", "max", "copysign"] {
        exact(out, format!("{name}.f64"), "g<gg");
    }
}

fn halves(out: &mut Vec<Operation>) {
    for (ty, letter) in [("f16", 'h'), ("f16x2", 'w'), ("bf16", 'h'), ("bf16x2", 'w')] {
        let (one, two) = (format!("{letter}<{letter}"), format!("{letter}<{letter}{letter}"));
        let three = format!("{letter}<{letter}{letter}{letter}");
        for name in ["add", "sub", "mul"] {
            exact(out, format!("{name}.rn.{ty}"), &two);
            if ty.starts_with('f') {
                exact(out, format!("{name}.rn.ftz.{ty}"), &two);
                exact(out, format!("{name}.rn.sat.{ty}"), &two);
            }
        }
        exact(out, format!("fma.rn.{ty}"), &three);
        exact(out, format!("fma.rn.relu.{ty}"), &three);
        if ty.starts_with('f') {
            exact(out, format!("fma.rn.ftz.{ty}"), &three);
            exact(out, format!("fma.rn.sat.{ty}"), &three);
        }
        for name in ["min", "max"] {
            exact(out, format!("{name}.{ty}"), &two);
            exact(out, format!("{name}.NaN.{ty}"), &two);
        }
        for name in ["neg", "abs"] {
            exact(out, format!("{name}.{ty}"), &one);
        }
    }
}

fn comparisons(out: &mut Vec<Operation>) {
    for name in ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"] {
        exact(out, format!("setp.{name}.f32"), "p<ff");
        exact(out, format!("setp.{name}.ftz.f32"), "p<ff");
        exact(out, format!("setp.{name}.f64"), "p<gg");
        exact(out, format!("setp.{name}.f16"), "p<hh");
        exact(out, format!("setp.{name}.bf16"), "p<hh");
        exact(out, format!("set.{name}.u32.f32"), "w<ff");
        exact(out, format!("set.{name}.f32.f32"), "f<ff");
    }
    for name in ["eq", "ne", "lt", "le", "gt", "ge"] {
        for (bits, letter) in [("16", 'h'), ("32", 'w'), ("64", 'd')] {
            for sign in ["u", "s"] {
                exact(out, format!("setp.{name}.{sign}{bits}"), &format!("p<{letter}{letter}"));
            }
        }
    }
    for name in ["lo", "ls", "hi", "hs"] {
        exact(out, format!("setp.{name}.u32"), "p<ww");
    }
    exact(out, "slct.b32.s32", "w<www");
    exact(out, "slct.f32.f32", "f<fff");
}

fn conversions(out: &mut Vec<Operation>) {
    let integers = [("16", 'h'), ("32", 'w'), ("64", 'd')];
    for (to, to_letter) in integers {
        for (from, from_letter) in integers {
            for (to_sign, from_sign) in [("u", "u"), ("u", "s"), ("s", "u"), ("s", "s")] {
                if (to, to_sign) != (from, from_sign) {
                    let name = format!("{to_sign}{to}.{from_sign}{from}");
                    exact(out, format!("cvt.{name}"), &format!("{to_letter}<{from_letter}"));
                    // Where every value fits there is nothing to saturate, and the modifier is refused.
                    if to.len() < from.len() || to <= from || (from_sign, to_sign) == ("s", "u") {
                        exact(out, format!("cvt.sat.{name}"), &format!("{to_letter}<{from_letter}"));
                    }
                }
            }
        }
        for sign in ["u", "s"] {
            for rounding in ["rni", "rzi", "rmi", "rpi"] {
                exact(out, format!("cvt.{rounding}.{sign}{to}.f32"), &format!("{to_letter}<f"));
                exact(out, format!("cvt.{rounding}.ftz.{sign}{to}.f32"), &format!("{to_letter}<f"));
                exact(out, format!("cvt.{rounding}.{sign}{to}.f64"), &format!("{to_letter}<g"));
                exact(out, format!("cvt.{rounding}.{sign}{to}.f16"), &format!("{to_letter}<h"));
            }
            for rounding in ["rn", "rz", "rm", "rp"] {
                exact(out, format!("cvt.{rounding}.f32.{sign}{to}"), &format!("f<{to_letter}"));
                exact(out, format!("cvt.{rounding}.f64.{sign}{to}"), &format!("g<{to_letter}"));
                exact(out, format!("cvt.{rounding}.f16.{sign}{to}"), &format!("h<{to_letter}"));
            }
            exact(out, format!("cvt.rn.bf16.{sign}{to}"), &format!("h<{to_letter}"));
        }
    }
    for rounding in ["rn", "rz", "rm", "rp"] {
        exact(out, format!("cvt.{rounding}.f32.f64"), "f<g");
        exact(out, format!("cvt.{rounding}.ftz.f32.f64"), "f<g");
        exact(out, format!("cvt.{rounding}.f16.f64"), "h<g");
    }
    for rounding in ["rn", "rz"] {
        exact(out, format!("cvt.{rounding}.f16.f32"), "h<f");
        exact(out, format!("cvt.{rounding}.bf16.f32"), "h<f");
        exact(out, format!("cvt.{rounding}.relu.f16.f32"), "h<f");
        for ty in ["f16x2", "bf16x2"] {
            exact(out, format!("cvt.{rounding}.{ty}.f32"), "w<ff");
            exact(out, format!("cvt.{rounding}.relu.{ty}.f32"), "w<ff");
        }
    }
    for rounding in ["rni", "rzi", "rmi", "rpi"] {
        exact(out, format!("cvt.{rounding}.f32.f32"), "f<f");
        exact(out, format!("cvt.{rounding}.f64.f64"), "g<g");
        exact(out, format!("cvt.{rounding}.f16.f16"), "h<h");
    }
    exact(out, "cvt.sat.f32.f32", "f<f");
    exact(out, "cvt.ftz.f32.f16", "f<h");
    exact(out, "cvt.f32.f16", "f<h");
    exact(out, "cvt.f32.bf16", "f<h");
    exact(out, "cvt.f64.f32", "g<f");
    exact(out, "cvt.f64.f16", "g<h");
    exact(out, "cvt.rna.tf32.f32", "w<f");
    for small in ["e4m3x2", "e5m2x2"] {
        exact(out, format!("cvt.rn.satfinite.{small}.f32"), "h<ff");
        exact(out, format!("cvt.rn.satfinite.{small}.f16x2"), "h<w");
        exact(out, format!("cvt.rn.f16x2.{small}"), "w<h");
    }
}

fn approximations(out: &mut Vec<Operation>) {
    let mut near = |opcode: String, signature: &str| out.push(Operation::new(opcode, signature, Agreement::Near));
    for ftz in ["", ".ftz"] {
        for name in ["rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"] {
            near(format!("{name}.approx{ftz}.f32"), "f<f");
        }
        near(format!("div.approx{ftz}.f32"), "f<ff");
        near(format!("div.full{ftz}.f32"), "f<ff");
    }
    near("tanh.approx.f32".into(), "f<f");
    near("ex2.approx.f16".into(), "h<h");
    near("ex2.approx.ftz.bf16".into(), "h<h");
    near("tanh.approx.f16".into(), "h<h");
    near("tanh.approx.bf16".into(), "h<h");
    near("rcp.approx.ftz.f64".into(), "g<g");
    near("rsqrt.approx.ftz.f64".into(), "g<g");
    near("rsqrt.approx.f64".into(), "g<g");
}
