//! Operations of a warp, of memory and of the matrix units: one small kernel each, `k(in, out)`.

use std::fmt::Write as _;

/// A kernel `name(in, out)`: threads of its one block, words of input and output.
pub struct Family {
    pub name: String,
    pub ptx: String,
    pub threads: u32,
    pub out_words: usize,
    /// Small integers in the format of the factors instead of random bits, so that any order of summation agrees.
    pub input: Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Bits,
    /// Random bits whose exponents keep sums of f32, f16 and bf16 finite.
    Halves,
    SmallF16,
    SmallBf16,
    SmallTf32,
}

pub const IN_WORDS: usize = 4096;

/// The frame of every kernel: `%in` and `%out` point at the words of this lane's own (`words` each), `%t` is the thread.
fn kernel(name: &str, in_words: usize, out_words: usize, body: &str) -> String {
    format!(
        ".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry {name}(.param .u64 p0, .param .u64 p1)\n{{\n\
         .reg .b32 %r<200>; .reg .b16 %h<40>; .reg .b64 %d<40>; .reg .f32 %f<40>; .reg .f64 %g<10>; .reg .pred %p<10>;\n\
         .reg .b64 %in, %out, %from, %to; .reg .b32 %t, %lane, %s; .shared .align 1024 .b8 sh[32768];\n\
         ld.param.u64 %from, [p0]; ld.param.u64 %to, [p1]; mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; mov.u32 %s, sh;\n\
         mul.wide.u32 %in, %t, {}; add.s64 %in, %in, %from; mul.wide.u32 %out, %t, {}; add.s64 %out, %out, %to;\n{body}\nret;\n}}\n",
        4 * in_words,
        4 * out_words
    )
}

fn load(count: usize) -> String {
    (0..count).map(|at| format!("ld.global.b32 %r{at}, [%in+{}];\n", 4 * at)).collect()
}

fn store(registers: &[String]) -> String {
    let line = |(at, register): (usize, &String)| format!("st.global.b32 [%out+{}], {register};\n", 4 * at);
    registers.iter().enumerate().map(line).collect()
}

/// Stores lines of `dest = instruction` in turn.
fn table(name: &str, in_words: usize, lines: &[String]) -> Family {
    let mut body = load(in_words);
    for (at, line) in lines.iter().enumerate() {
        let _ = writeln!(body, "{line}\nst.global.b32 [%out+{}], %r100;", 4 * at);
    }
    let ptx = kernel(name, in_words, lines.len(), &body);
    Family { name: name.into(), ptx, threads: 32, out_words: 32 * lines.len(), input: Input::Bits }
}

pub fn all() -> Vec<Family> {
    let mut all =
        vec![shuffles(), votes(), reductions(), atomics(), shared_atomics(), tiles(), tile_stores(), copies()];
    for (shape, kind) in [
        ("m16n8k8", "f16"),
        ("m16n8k16", "f16"),
        ("m16n8k8", "bf16"),
        ("m16n8k16", "bf16"),
        ("m16n8k4", "tf32"),
        ("m16n8k8", "tf32"),
        ("m16n8k16", "s8"),
        ("m16n8k32", "s8"),
        ("m16n8k16", "u8"),
        ("m16n8k32", "u8"),
    ] {
        all.push(product(shape, kind));
    }
    all
}

fn shuffles() -> Family {
    let mut lines = Vec::new();
    for mode in ["up", "down", "bfly", "idx"] {
        for (offset, clamp) in [("1", 31), ("5", 31), ("16", 31), ("3", 0x1807), ("%r1", 31), ("%r1", 0x1807)] {
            let clamp = if mode == "up" { clamp & !31 } else { clamp };
            lines.push(format!("and.b32 %r1, %r1, 31; shfl.sync.{mode}.b32 %r100|%p1, %r0, {offset}, {clamp}, -1;"));
            lines.push("selp.b32 %r100, 1, 0, %p1;".into());
        }
    }
    table("shuffles", 2, &lines)
}

fn votes() -> Family {
    let mut lines = vec!["and.b32 %r2, %r0, 1; setp.ne.b32 %p1, %r2, 0; setp.ne.b32 %p2, %r0, %r0;".to_owned()];
    lines[0] += " vote.sync.ballot.b32 %r100, %p1, -1;";
    for (mode, guard) in
        [("any", "%p1"), ("all", "%p1"), ("uni", "%p1"), ("any", "%p2"), ("all", "!%p2"), ("uni", "%p2")]
    {
        lines.push(format!("vote.sync.{mode}.pred %p3, {guard}, -1; selp.b32 %r100, 1, 0, %p3;"));
    }
    lines.push("and.b32 %r3, %r0, 7; match.any.sync.b32 %r100, %r3, -1;".into());
    lines.push("match.all.sync.b32 %r100|%p4, %r3, -1;".into());
    lines.push("selp.b32 %r100, 1, 0, %p4;".into());
    lines.push("mov.b32 %r4, 9; match.all.sync.b32 %r100|%p4, %r4, -1;".into());
    lines.push("selp.b32 %r100, 1, 0, %p4;".into());
    lines.push("cvt.u64.u32 %d1, %r3; match.any.sync.b64 %r100, %d1, -1;".into());
    table("votes", 1, &lines)
}

fn reductions() -> Family {
    let lines = ["add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"];
    table("reductions", 1, &lines.map(|op| format!("redux.sync.{op} %r100, %r0, -1;")))
}

/// Every lane on a word of its own, so that the old values are the same in any order; then all lanes on one.
fn atomics() -> Family {
    let mut body = load(3);
    let mut out = Vec::new();
    let alone = [
        ("add.u32", "b32"),
        ("min.s32", "b32"),
        ("max.s32", "b32"),
        ("min.u32", "b32"),
        ("max.u32", "b32"),
        ("and.b32", "b32"),
        ("or.b32", "b32"),
        ("xor.b32", "b32"),
        ("exch.b32", "b32"),
        ("inc.u32", "b32"),
        ("dec.u32", "b32"),
        ("add.f32", "f32"),
        ("add.noftz.f16x2", "b32"),
        ("add.noftz.bf16x2", "b32"),
    ];
    let words = 2 * alone.len() + 4;
    for (at, (op, _)) in alone.iter().enumerate() {
        // The word itself, then the old value beside it.
        let place = 8 * at;
        let value = if op.ends_with("f32") { "%f1" } else { "%r1" };
        let old = if op.ends_with("f32") { "%f2" } else { "%r101" };
        let _ = writeln!(
            body,
            "st.global.b32 [%out+{place}], %r0; mov.b32 %f1, %r1; atom.global.{op} {old}, [%out+{place}], {value}; st.global.b32 [%out+{}], {old};",
            place + 4
        );
        out.push(place);
    }
    let next = 8 * alone.len();
    let _ = writeln!(
        body,
        "st.global.b32 [%out+{next}], %r0; and.b32 %r5, %r2, 1; add.s32 %r6, %r0, %r5; atom.global.cas.b32 %r101, [%out+{next}], %r6, %r1; st.global.b32 [%out+{}], %r101;\n\
         st.global.b64 [%out+{}], 0; mov.b64 %d1, {{%r0, %r1}}; atom.global.add.u64 %d2, [%out+{}], %d1;",
        next + 4,
        next + 8,
        next + 8
    );
    Family {
        name: "atomics".into(),
        ptx: kernel("atomics", 3, words, &body),
        threads: 64,
        out_words: 64 * words,
        input: Input::Halves,
    }
}

fn shared_atomics() -> Family {
    let mut body = load(1);
    body += "shl.b32 %r2, %lane, 2; add.s32 %r3, %s, %r2; st.shared.b32 [%r3], 0; bar.sync 0; and.b32 %r4, %r0, 28; add.s32 %r5, %s, %r4;\n\
             red.shared.add.u32 [%r5], %t; red.shared.max.u32 [%r5+32], %r0; red.shared.xor.b32 [%r5+64], %r0; atom.shared.or.b32 %r6, [%r5+96], %t; bar.sync 0;\n\
             ld.shared.b32 %r100, [%r3]; st.global.b32 [%out], %r100;";
    Family {
        name: "shared_atomics".into(),
        ptx: kernel("shared_atomics", 1, 1, &body),
        threads: 128,
        out_words: 128,
        input: Input::Bits,
    }
}

/// Fills 4 KiB of shared memory from the input, 32 words a lane.
fn fill() -> String {
    let mut body = String::new();
    for at in 0..32 {
        let _ = writeln!(
            body,
            "ld.global.b32 %r0, [%in+{0}]; shl.b32 %r1, %lane, 7; add.s32 %r1, %r1, %s; st.shared.b32 [%r1+{0}], %r0;",
            4 * at
        );
    }
    body + "bar.warp.sync -1;\n"
}

fn tiles() -> Family {
    let mut body = fill() + "mul.lo.u32 %r2, %lane, 80; and.b32 %r2, %r2, 4080; add.s32 %r3, %s, %r2;\n";
    let mut registers = Vec::new();
    for trans in ["", ".trans"] {
        for (count, list) in [(1, "{A}"), (2, "{A,B}"), (4, "{A,B,C,D}")] {
            let first = 100 + registers.len();
            let mut names = list.to_owned();
            for (at, letter) in ["A", "B", "C", "D"].iter().enumerate() {
                names = names.replace(letter, &format!("%r{}", first + at));
            }
            let _ = writeln!(body, "ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {names}, [%r3];");
            registers.extend((0..count).map(|at| format!("%r{}", first + at)));
        }
    }
    body += &store(&registers);
    let words = registers.len();
    Family {
        name: "tiles".into(),
        ptx: kernel("tiles", 32, words, &body),
        threads: 32,
        out_words: 32 * words,
        input: Input::Bits,
    }
}

fn tile_stores() -> Family {
    let mut body = load(4) + "shl.b32 %r10, %lane, 7; add.s32 %r10, %r10, %s;\n";
    (0..32).for_each(|at| body += &format!("st.shared.b32 [%r10+{}], 0;\n", 4 * at));
    body += "bar.warp.sync -1; shl.b32 %r11, %lane, 4; add.s32 %r11, %r11, %s;\n";
    for (at, trans) in ["", ".trans"].iter().enumerate() {
        let _ = writeln!(
            body,
            "stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r11+{}], {{%r0,%r1,%r2,%r3}}; stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%r11+{}], {{%r0,%r1}}; stmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 [%r11+{}], {{%r2}};",
            1536 * at,
            1536 * at + 512,
            1536 * at + 1024
        );
    }
    body += "bar.warp.sync -1;\n";
    (0..32)
        .for_each(|at| body += &format!("ld.shared.b32 %r100, [%r10+{0}]; st.global.b32 [%out+{0}], %r100;\n", 4 * at));
    Family {
        name: "tile_stores".into(),
        ptx: kernel("tile_stores", 4, 32, &body),
        threads: 32,
        out_words: 1024,
        input: Input::Bits,
    }
}

fn copies() -> Family {
    let body = "shl.b32 %r1, %lane, 7; add.s32 %r2, %r1, %s; mov.b32 %r3, 7; and.b32 %r4, %lane, 15;\n\
        cp.async.cg.shared.global [%r2], [%in], 16; cp.async.ca.shared.global [%r2+16], [%in+16], 8; cp.async.ca.shared.global [%r2+24], [%in+24], 4;\n\
        cp.async.ca.shared.global [%r2+28], [%in+28], 4, 2; cp.async.cg.shared.global [%r2+32], [%in+32], 16, %r4; cp.async.cg.shared.global [%r2+48], [%in+48], 16, 0;\n\
        cp.async.commit_group; cp.async.wait_group 0;\n"
        .to_owned();
    let lines: String = (0..16)
        .map(|at| format!("ld.shared.b32 %r100, [%r2+{0}]; st.global.b32 [%out+{0}], %r100;\n", 4 * at))
        .collect();
    Family {
        name: "copies".into(),
        ptx: kernel("copies", 16, 16, &(body + &lines)),
        threads: 32,
        out_words: 512,
        input: Input::Bits,
    }
}

fn product(shape: &str, kind: &str) -> Family {
    let k: usize = shape.rsplit('k').next().and_then(|k| k.parse().ok()).expect("a shape");
    let (per_register, sum, input) = match kind {
        "f16" => (2, "f32", Input::SmallF16),
        "bf16" => (2, "f32", Input::SmallBf16),
        "tf32" => (1, "f32", Input::SmallTf32),
        _ => (4, "s32", Input::Bits),
    };
    let (a, b) = (k / (2 * per_register), k / (4 * per_register));
    let list = |range: std::ops::Range<usize>| range.map(|at| format!("%r{at}")).collect::<Vec<_>>().join(",");
    let name = format!("mma_{shape}_{kind}");
    let (d, zero) = if sum == "f32" {
        ("%f0,%f1,%f2,%f3", "%f4,%f4,%f4,%f4")
    } else {
        ("%r100,%r101,%r102,%r103", "%r99,%r99,%r99,%r99")
    };
    let mut body = load(a + b);
    let _ = writeln!(
        body,
        "mov.b32 %r99, 3; mov.f32 %f4, 0f40400000; mma.sync.aligned.{shape}.row.col.{sum}.{kind}.{kind}.{sum} {{{d}}}, {{{}}}, {{{}}}, {{{zero}}};",
        list(0..a),
        list(a..a + b)
    );
    for (at, register) in d.split(',').enumerate() {
        let _ = writeln!(body, "st.global.b32 [%out+{}], {register};", 4 * at);
    }
    Family { ptx: kernel(&name, a + b, 4, &body), name, threads: 32, out_words: 128, input }
}
