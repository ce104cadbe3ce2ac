//! Codes of threads at parts of one word: halves and bytes, beside accesses to all of it.

use super::Code;

/// A name, whether it races, and what each of some threads does.
type Sequence<'n> = (&'n str, bool, Vec<(u32, String)>);

/// A case: what it is called, whether it races, how many threads a block has, what they do.
type Case = (String, bool, u32, String);

pub fn codes() -> Vec<Code> {
    let code = |category, blocks| {
        move |(name, races, threads, body): Case| Code { category, name, races, blocks, threads, body }
    };
    let mut codes = Vec::new();
    for space in ["shared", "global"] {
        let in_a_block = [lanes(space), warps(space), atomics(space), flags(space)].into_iter().flatten();
        codes.extend(in_a_block.map(code("parts of a word in a block", 1)));
    }
    codes.extend(blocks().into_iter().map(code("parts of a word and several blocks", 4)));
    codes
}

/// A word of 0 at `[%rd9]`.
fn word(space: &str) -> &'static str {
    if space == "shared" {
        "mov.u64 %rd9, s; setp.ne.u32 %p0, %r0, 0; @%p0 bra B; st.shared.u32 [s], 0; B: bar.sync 0;"
    } else {
        "mov.u64 %rd9, %rd0;"
    }
}

/// What one thread does.
fn by(thread: u32, what: &str) -> String {
    format!("setp.eq.u32 %p1, %r0, {thread}; @%p1 {what}")
}

fn load(space: &str, ty: &str, at: u32) -> String {
    format!("ld.{space}.{ty} {}, [%rd9+{at}];", if ty == "u32" { "%r10" } else { "%rs1" })
}

fn store(space: &str, ty: &str, at: u32) -> String {
    format!("st.{space}.{ty} [%rd9+{at}], {};", if ty == "u32" { "%r0" } else { "%rs0" })
}

/// Steps of one thread each, with `between` behind each of them.
fn steps(space: &str, between: &str, steps: &[(u32, String)]) -> String {
    let steps: Vec<String> = steps.iter().map(|(thread, what)| by(*thread, what)).collect();
    format!("{} cvt.u16.u32 %rs0, %r0; {}", word(space), steps.join(&format!("\n{between}\n")))
}

/// Lanes of one warp.
fn lanes(space: &str) -> Vec<Case> {
    let load = |ty, at| load(space, ty, at);
    let store = |ty, at| store(space, ty, at);
    let cases: [Sequence<'_>; 14] = [
        ("half read, word written by another", true, vec![(0, load("u16", 0)), (1, store("u32", 0))]),
        ("half read, next word written by another", false, vec![(0, load("u16", 0)), (1, store("u32", 4))]),
        ("word written, half read by another", true, vec![(1, store("u32", 0)), (0, load("u16", 2))]),
        ("word read, half written by another", true, vec![(0, load("u32", 0)), (1, store("u16", 2))]),
        ("word read, half written by the same", false, vec![(0, load("u32", 0)), (0, store("u16", 2))]),
        (
            "halves read by two, word written by one of them",
            true,
            vec![(0, load("u16", 0)), (1, load("u16", 2)), (0, store("u32", 0))],
        ),
        (
            "halves read and word written by one",
            false,
            vec![(0, load("u16", 0)), (0, load("u16", 2)), (0, store("u32", 0))],
        ),
        (
            "word read by one and half by another, which writes it",
            true,
            vec![(0, load("u32", 0)), (1, load("u16", 0)), (1, store("u16", 0))],
        ),
        (
            "half read by one, word by another, which writes the other half",
            false,
            vec![(0, load("u16", 0)), (1, load("u32", 0)), (1, store("u16", 2))],
        ),
        (
            "halves written by one, the first read by another",
            true,
            vec![(0, store("u16", 0)), (0, store("u16", 2)), (1, load("u16", 0))],
        ),
        (
            "halves written by two, each read by its own",
            false,
            vec![(5, store("u16", 2)), (9, store("u16", 0)), (5, load("u16", 2)), (9, load("u16", 0))],
        ),
        (
            "halves written by two, one read by the other",
            true,
            vec![(5, store("u16", 2)), (9, store("u16", 0)), (9, load("u16", 2))],
        ),
        (
            "bytes read by three, one written by another",
            true,
            vec![(3, load("u8", 0)), (8, load("u8", 1)), (6, load("u8", 2)), (8, store("u8", 0))],
        ),
        (
            "bytes read by three, the fourth written",
            false,
            vec![(3, load("u8", 0)), (8, load("u8", 1)), (6, load("u8", 2)), (8, store("u8", 3))],
        ),
    ];
    let mut codes = Vec::new();
    for (way, between, orders) in [("nothing", "", false), ("a barrier of the warp", "bar.warp.sync -1;", true)] {
        for (name, races, what) in &cases {
            codes.push((format!("{space} {name}, {way}"), *races && !orders, 32, steps(space, between, what)));
        }
        for (name, other) in [("behind", "add.u32 %r10, %r0, 1;"), ("two on", "xor.b32 %r10, %r0, 2;")] {
            for (writes, at, races) in [("its own", "%rd10", true), ("what it read", "%rd11", false)] {
                let body = format!(
                    "{} {other} and.b32 %r10, %r10, 3; and.b32 %r11, %r0, 28; or.b32 %r10, %r10, %r11;
                     cvt.u64.u32 %rd10, %r0; add.s64 %rd10, %rd9, %rd10; cvt.u64.u32 %rd11, %r10; add.s64 %rd11, %rd9, %rd11;
                     {} bar.warp.sync -1; ld.{space}.u8 %rs1, [%rd11]; {between} st.{space}.u8 [{at}], %rs1;",
                    word(space),
                    format_args!("mov.u16 %rs2, 0; st.{space}.u8 [%rd10], %rs2;"),
                );
                codes.push((format!("{space} byte {name} read, {writes} written, {way}"), races && !orders, 32, body));
            }
        }
    }
    codes
}

/// Threads of several warps, one each.
fn warps(space: &str) -> Vec<Case> {
    let load = |ty, at| load(space, ty, at);
    let store = |ty, at| store(space, ty, at);
    let read_by_three = || vec![(0, load("u8", 0)), (32, load("u8", 1)), (64, load("u8", 2))];
    let with = |mut first: Vec<(u32, String)>, last: (u32, String)| {
        first.push(last);
        first
    };
    let cases: [Sequence<'_>; 9] = [
        (
            "halves written by two, each reads its own",
            false,
            vec![(0, store("u16", 0)), (32, store("u16", 2)), (0, load("u16", 0)), (32, load("u16", 2))],
        ),
        (
            "halves written by two, the first read by the second",
            true,
            vec![(0, store("u16", 0)), (32, store("u16", 2)), (32, load("u16", 0))],
        ),
        (
            "halves written by one, the first read by another",
            true,
            vec![(0, store("u16", 0)), (0, store("u16", 2)), (32, load("u16", 0))],
        ),
        (
            "halves written by one, the first written by another",
            true,
            vec![(0, store("u16", 0)), (0, store("u16", 2)), (32, store("u16", 0))],
        ),
        (
            "halves read by one in turn, the first written by another",
            true,
            vec![(0, load("u16", 0)), (0, "membar.cta;".into()), (0, load("u16", 2)), (32, store("u16", 0))],
        ),
        ("bytes read by three, the first written by a fourth", true, with(read_by_three(), (96, store("u8", 0)))),
        ("bytes read by three, the fourth written by a fourth", false, with(read_by_three(), (96, store("u8", 3)))),
        ("bytes read by three, all written by one of them", true, with(read_by_three(), (64, store("u32", 0)))),
        ("bytes read by three, one of them written by its reader", false, with(read_by_three(), (0, store("u8", 0)))),
    ];
    let mut codes = Vec::new();
    for (way, between, orders) in [("nothing", "", false), ("a barrier", "bar.sync 0;", true)] {
        for (name, races, what) in &cases {
            codes.push((format!("{space} {name}, {way}"), *races && !orders, 128, steps(space, between, what)));
        }
    }
    codes
}

/// Atomic operations on halves.
fn atomics(space: &str) -> Vec<Case> {
    let load = |at| load(space, "u16", at);
    let store = |at| store(space, "u16", at);
    let swap = |at: u32| format!("atom.{space}.cas.b16 %rs5, [%rd9+{at}], %rs4, %rs0;");
    let whole = |at: u32| format!("atom.{space}.add.u32 %r10, [%rd9+{at}], 1;");
    let cases: [Sequence<'_>; 10] = [
        ("swaps of one half", false, vec![(0, swap(0)), (1, swap(0)), (32, swap(0))]),
        ("swap of a half, plain read of it", true, vec![(0, swap(0)), (1, load(0))]),
        ("swap of a half, plain read of the other", false, vec![(0, swap(0)), (1, load(2))]),
        ("swap of a half, plain write of it", true, vec![(0, swap(2)), (32, store(2))]),
        ("swap of a half, plain write of the other", false, vec![(0, swap(2)), (32, store(0))]),
        ("swaps of both halves, the first read by the second", true, vec![(0, swap(0)), (32, swap(2)), (32, load(0))]),
        (
            "swaps of both halves, each reads its own",
            false,
            vec![(0, swap(0)), (32, swap(2)), (32, load(2)), (0, load(0))],
        ),
        ("plain write of a half, addition to the word", true, vec![(0, store(0)), (32, whole(0))]),
        ("swap of a half, addition to the word", false, vec![(0, swap(0)), (32, whole(0))]),
        ("plain writes of both halves, swap of the first", true, vec![(0, store(0)), (32, store(2)), (32, swap(0))]),
    ];
    let of = |(name, races, what): &(&str, bool, Vec<(u32, String)>)| {
        let body = format!("mov.u16 %rs4, 0; {}", steps(space, "", what));
        (format!("{space} {name}"), *races, 64, body)
    };
    cases.iter().map(of).collect()
}

/// All lanes of a warp write a part each; one of them passes on what it did, and a lane of another warp sees it.
fn flags(space: &str) -> Vec<Case> {
    let mut codes = Vec::new();
    for (ty, bytes) in [("u16", 2), ("u8", 1)] {
        for (what, read, at, races) in [
            ("that part", ty, 0, false),
            ("its neighbour", ty, bytes, true),
            ("the part of the last lane", ty, 31 * bytes, true),
            ("the word", "u32", 0, true),
        ] {
            let body = format!(
                "{} cvt.u16.u32 %rs0, %r0; mul.wide.u32 %rd10, %r0, {bytes}; add.s64 %rd10, %rd9, %rd10;
                 setp.gt.u32 %p2, %r0, 31; @%p2 bra P; st.{space}.{ty} [%rd10], %rs0; setp.ne.u32 %p3, %r0, 0; @%p3 bra E;
                 membar.cta; atom.global.exch.b32 %r20, [%rd1], 1; bra E;
                 P: setp.ne.u32 %p4, %r0, 32; @%p4 bra E; L: ld.acquire.cta.global.u32 %r21, [%rd1]; setp.eq.u32 %p5, %r21, 0; @%p5 bra L;
                 {} E:",
                word(space),
                load(space, read, at),
            );
            codes.push((format!("{space} {ty} of a lane passed on, {what} read"), races, 64, body));
        }
    }
    codes
}

/// One thread of each of four blocks.
fn blocks() -> Vec<Case> {
    let begin =
        "setp.ne.u32 %p0, %r0, 0; @%p0 bra E; cvt.u16.u32 %rs0, %r1; add.u32 %r10, %r1, 1; and.b32 %r10, %r10, 3;
        cvt.u64.u32 %rd10, %r1; add.s64 %rd10, %rd0, %rd10; cvt.u64.u32 %rd11, %r10; add.s64 %rd11, %rd0, %rd11;
        and.b32 %r11, %r1, 1; shl.b32 %r11, %r11, 1; cvt.u64.u32 %rd12, %r11; add.s64 %rd12, %rd0, %rd12;
        setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1; setp.eq.u32 %p3, %r1, 2; setp.lt.u32 %p4, %r1, 2;";
    let cases = [
        ("a byte each", false, "st.global.u8 [%rd10], %rs0;"),
        ("a byte each, read and written", false, "ld.global.u8 %rs1, [%rd10]; st.global.u8 [%rd10], %rs0;"),
        ("a byte each, the next one read", true, "st.global.u8 [%rd10], %rs0; ld.global.u8 %rs1, [%rd11];"),
        ("the next byte read, the own written", true, "ld.global.u8 %rs1, [%rd11]; st.global.u8 [%rd10], %rs0;"),
        ("the word read, a byte written", true, "ld.global.u32 %r12, [%rd0]; st.global.u8 [%rd10], %rs0;"),
        ("a byte read, the word written by one", true, "ld.global.u8 %rs1, [%rd10]; @%p3 st.global.u32 [%rd0], %r1;"),
        ("a half by two blocks each", true, "st.global.u16 [%rd12], %rs0;"),
        ("a half by a block each", false, "@%p4 st.global.u16 [%rd12], %rs0;"),
        (
            "a half by a block each, the first read by a third",
            true,
            "@%p4 st.global.u16 [%rd12], %rs0; @%p3 ld.global.u16 %rs1, [%rd0];",
        ),
        (
            "halves by one block, the first written by another",
            true,
            "@%p1 st.global.u16 [%rd0], 7; @%p1 st.global.u16 [%rd0+2], 7; @%p2 st.global.u16 [%rd0], 8;",
        ),
        (
            "halves by one block, the next word by another",
            false,
            "@%p1 st.global.u16 [%rd0], 7; @%p1 st.global.u16 [%rd0+2], 7; @%p2 st.global.u16 [%rd0+4], 8;",
        ),
        (
            "data behind a flag, another flag in the other half",
            false,
            "@%p1 st.global.u32 [%rd0+64], 7; @%p1 st.release.gpu.global.u16 [%rd1], 1; @%p2 st.release.gpu.global.u16 [%rd1+2], 1;
            @!%p3 bra E; L: ld.acquire.gpu.global.u16 %rs1, [%rd1]; setp.eq.u16 %p5, %rs1, 0; @%p5 bra L; ld.global.u32 %r12, [%rd0+64];",
        ),
        (
            "data behind no flag, flags in both halves",
            true,
            "@%p1 st.release.gpu.global.u16 [%rd1], 1; @%p1 st.global.u32 [%rd0+64], 7; @%p2 st.release.gpu.global.u16 [%rd1+2], 1;
            @!%p3 bra E; L: ld.acquire.gpu.global.u16 %rs1, [%rd1]; setp.eq.u16 %p5, %rs1, 0; @%p5 bra L; ld.global.u32 %r12, [%rd0+64];",
        ),
        ("only read, by bytes and whole", false, "ld.global.u8 %rs1, [%rd11]; ld.global.u32 %r12, [%rd0];"),
    ];
    cases.map(|(name, races, body)| (name.to_owned(), races, 64, format!("{begin} {body} E:"))).into()
}
