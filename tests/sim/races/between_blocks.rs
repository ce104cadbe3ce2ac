//! Codes of several blocks: flags, scopes, counters, stores to one word, overlapping stretches, neighbours of a graph.

use super::Code;

fn code(category: &'static str, name: String, races: bool, blocks: u32, body: String) -> Code {
    Code { category, name, races, blocks, threads: 64, body }
}

pub fn codes() -> Vec<Code> {
    let mut codes = flags();
    codes.extend(counters());
    codes.extend(words());
    codes.extend(stretches());
    codes.extend(graphs());
    codes
}

/// Block 0 writes data and sets a flag, block 1 sees the flag and reads.
fn flags() -> Vec<Code> {
    let sets = [
        ("release", "st.release.gpu.global.u32 [%rd1], 1;", true),
        ("fence and atomic", "membar.gl; atom.global.exch.b32 %r20, [%rd1], 1;", true),
        ("fence and volatile", "membar.gl; st.volatile.global.u32 [%rd1], 1;", true),
        ("fence for the system and atomic", "membar.sys; atom.global.or.b32 %r20, [%rd1], 1;", true),
        ("release of the block", "st.release.cta.global.u32 [%rd1], 1;", false),
        ("fence of the block", "membar.cta; atom.global.exch.b32 %r20, [%rd1], 1;", false),
        ("fence and atomic of the block", "membar.gl; atom.cta.global.exch.b32 %r20, [%rd1], 1;", false),
        ("no fence", "atom.global.exch.b32 %r20, [%rd1], 1;", false),
        ("fence behind the flag", "atom.global.exch.b32 %r20, [%rd1], 1; membar.gl;", false),
        ("plain flag", "membar.gl; st.global.u32 [%rd1], 1;", false),
    ];
    let sees = [
        ("acquire", "ld.acquire.gpu.global.u32 %r21, [%rd1];", true),
        ("volatile and fence", "ld.volatile.global.u32 %r21, [%rd1]; membar.gl;", true),
        ("atomic and fence", "atom.global.add.u32 %r21, [%rd1], 0; membar.gl;", true),
        ("acquire of the block", "ld.acquire.cta.global.u32 %r21, [%rd1];", false),
    ];
    let mut codes = Vec::new();
    for (set, write, releases) in sets {
        for (see, read, acquires) in sees {
            for polls in [false, true] {
                let again = if polls { "@%p2 bra P;" } else { "@%p2 bra E;" };
                let body = format!(
                    "setp.ne.u32 %p0, %r0, 0; @%p0 bra E; setp.ne.u32 %p1, %r1, 0; @%p1 bra P;
                     st.global.u32 [%rd0], 42; {write} bra E;
                     P: {read} setp.eq.u32 %p2, %r21, 0; {again} ld.global.u32 %r22, [%rd0]; st.global.u32 [%rd2], %r22; E:"
                );
                let how = if polls { "polled" } else { "looked at once" };
                codes.push(code("flag", format!("{set}, {see}, {how}"), !(releases && acquires), 2, body));
            }
        }
    }
    // Who writes or reads is not who sets or sees.
    let by = |writer: u32, setter: u32, meets: &str, seer: u32, reader: u32, meets_too: &str| {
        format!(
            "setp.eq.u32 %p0, %r0, {writer}; setp.eq.u32 %p3, %r0, {setter}; setp.eq.u32 %p4, %r0, {seer}; setp.eq.u32 %p5, %r0, {reader};
             setp.ne.u32 %p1, %r1, 0; @%p1 bra P; @%p0 st.global.u32 [%rd0], 42; {meets} @!%p3 bra E; membar.gl; atom.global.exch.b32 %r20, [%rd1], 1; bra E;
             P: @!%p4 bra Q; L: ld.acquire.gpu.global.u32 %r21, [%rd1]; setp.eq.u32 %p2, %r21, 0; @%p2 bra L;
             Q: {meets_too} @%p5 ld.global.u32 %r22, [%rd0]; E:"
        )
    };
    let (block, none) = ("bar.sync 0;", "");
    for (name, races, body) in [
        ("by one thread", false, by(0, 0, none, 0, 0, none)),
        ("another warp wrote", true, by(32, 0, none, 0, 0, none)),
        ("another warp wrote, barrier", false, by(32, 0, block, 0, 0, none)),
        ("another lane wrote", true, by(5, 0, none, 0, 0, none)),
        ("another warp reads", true, by(0, 0, none, 0, 32, none)),
        ("another warp reads, barrier", false, by(0, 0, none, 0, 32, block)),
        ("other warps on both sides, barriers", false, by(32, 0, block, 0, 63, block)),
        ("other warps on both sides, a barrier where it is set", true, by(32, 0, block, 0, 63, none)),
    ] {
        codes.push(code("flag for other threads", name.to_owned(), races, 2, body));
    }
    codes
}

/// Blocks that count in one word.
fn counters() -> Vec<Code> {
    let one = |body: &str| format!("setp.ne.u32 %p0, %r0, 0; @%p0 bra E; {body} E:");
    let last = |fence: &str, behind: &str| {
        format!(
            "setp.ne.u32 %p0, %r0, 0; @%p0 bra E; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd0, %rd5; st.global.u32 [%rd6], 5;
             {fence} atom.global.inc.u32 %r10, [%rd1], 3; setp.ne.u32 %p1, %r10, 3; @%p1 bra E; {behind} ld.global.v4.u32 {{%r11,%r12,%r13,%r14}}, [%rd0]; E:"
        )
    };
    let mut codes = Vec::new();
    for (ty, name) in [("u32", "32 bits"), ("u64", "64 bits")] {
        let register = if ty == "u32" { "%r10" } else { "%rd20" };
        for (what, races, body) in [
            (
                "plain",
                true,
                format!(
                    "ld.global.{ty} {register}, [%rd1]; add.{ty} {register}, {register}, 1; st.global.{ty} [%rd1], {register};"
                ),
            ),
            ("atomic", false, format!("red.global.add.{ty} [%rd1], 1;")),
            ("atomic of the device", false, format!("red.gpu.global.add.{ty} [%rd1], 1;")),
            ("atomic of the block", true, format!("red.cta.global.add.{ty} [%rd1], 1;")),
            ("atomic with result", false, format!("atom.global.add.{ty} {register}, [%rd1], 1;")),
            ("atomic of the block with result", true, format!("atom.cta.global.add.{ty} {register}, [%rd1], 1;")),
            (
                "atomic, then a plain read",
                true,
                format!("red.global.add.{ty} [%rd1], 1; ld.global.{ty} {register}, [%rd1];"),
            ),
            (
                "atomic, then a volatile read",
                false,
                format!("red.global.add.{ty} [%rd1], 1; ld.volatile.global.{ty} {register}, [%rd1];"),
            ),
            ("plain reset before", true, format!("st.global.{ty} [%rd1], 0; red.global.add.{ty} [%rd1], 1;")),
        ] {
            codes.push(code("counter of blocks", format!("{name} {what}"), races, 4, one(&body)));
        }
    }
    for (name, races, body) in [
        ("fences", false, last("membar.gl;", "membar.gl;")),
        ("no fence before", true, last("", "membar.gl;")),
        ("fence of the block", true, last("membar.cta;", "membar.gl;")),
        ("fence of the cluster", true, last("fence.acq_rel.cluster;", "membar.gl;")),
    ] {
        codes.push(code("last block adds up", name.to_owned(), races, 4, body));
    }
    codes
}

/// Stores of all blocks to one word.
fn words() -> Vec<Code> {
    let mut codes = Vec::new();
    for (ty, of_block, of_thread) in [("u32", "%r1", "%r2"), ("u16", "%rs1", "%rs2"), ("u8", "%rs1", "%rs2")] {
        let begin = "cvt.u16.u32 %rs1, %r1; cvt.u16.u32 %rs2, %r2; setp.eq.u32 %p0, %r0, 0;";
        for (name, races, body) in [
            ("one value by all", false, format!("st.global.{ty} [%rd0], 1;")),
            ("one value by a thread of each", false, format!("@%p0 st.global.{ty} [%rd0], 1;")),
            ("a value a block, by one thread", true, format!("@%p0 st.global.{ty} [%rd0], {of_block};")),
            ("a value a block", true, format!("st.global.{ty} [%rd0], {of_block};")),
            ("a value a thread", true, format!("st.global.{ty} [%rd0], {of_thread};")),
            ("one value by all, read by all", true, format!("st.global.{ty} [%rd0], 1; ld.global.{ty} %rs5, [%rd0];")),
            ("only read", false, format!("ld.global.{ty} %rs5, [%rd0];")),
            (
                "written by one block",
                false,
                format!("add.u32 %r6, %r0, %r1; setp.eq.u32 %p1, %r2, 0; @%p1 st.global.{ty} [%rd0], 1;"),
            ),
        ] {
            let body = if ty == "u32" { body.replace("%rs5", "%r12") } else { body };
            codes.push(code(
                "one word and several blocks",
                format!("{ty} {name}"),
                races,
                4,
                format!("{begin} {body}"),
            ));
        }
    }
    codes
}

/// Stretches of an array that overlap by a mistake of an index, and those that do not.
fn stretches() -> Vec<Code> {
    let at = |index: &str, of: &str| format!("{index} mul.wide.u32 %rd5, {of}, 4; add.s64 %rd6, %rd0, %rd5;");
    let store = "st.global.u32 [%rd6], %r2;";
    let cases: Vec<(&str, bool, String)> = vec![
        ("own", false, format!("{} {store}", at("", "%r2"))),
        ("by two threads", true, format!("{} {store}", at("shr.u32 %r10, %r2, 1;", "%r10"))),
        ("of the block alone", true, format!("{} {store}", at("", "%r0"))),
        ("blocks a thread too close", true, format!("{} {store}", at("mad.lo.u32 %r10, %r1, 63, %r0;", "%r10"))),
        ("blocks apart", false, format!("{} {store}", at("mad.lo.u32 %r10, %r1, 65, %r0;", "%r10"))),
        ("own and the next", true, format!("{} {store} st.global.u32 [%rd6+4], %r2;", at("", "%r2"))),
        ("pairs", false, format!("{} {store} st.global.u32 [%rd6+4], %r2;", at("shl.b32 %r10, %r2, 1;", "%r10"))),
        ("modulo", true, format!("{} {store}", at("and.b32 %r10, %r2, 127;", "%r10"))),
        ("a step of a grid", false, format!("{} {store} st.global.u32 [%rd6+1024], %r2;", at("", "%r2"))),
        ("a step too small", true, format!("{} {store} st.global.u32 [%rd6+512], %r2;", at("", "%r2"))),
        (
            "rest with a right guard",
            false,
            format!("setp.gt.u32 %p0, %r2, 199; @%p0 bra E; {} {store} E:", at("", "%r2")),
        ),
        ("rest clamped to the last", true, format!("{} {store}", at("min.u32 %r10, %r2, 199;", "%r10"))),
        (
            "borders read before they are written",
            true,
            format!("{} ld.global.u32 %r11, [%rd6+4]; st.global.u32 [%rd6], %r11;", at("", "%r2")),
        ),
        (
            "borders from another array",
            false,
            format!("{} ld.global.u32 %r11, [%rd6+4]; st.global.u32 [%rd2], %r11;", at("", "%r2")),
        ),
        (
            "borders of the next block alone",
            true,
            format!("setp.ne.u32 %p0, %r0, 63; {} @%p0 bra S; ld.global.u32 %r11, [%rd6+4]; S: {store}", at("", "%r2")),
        ),
        ("transposed", false, format!("{} {store}", at("shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r1;", "%r10"))),
        (
            "transposed with a wrong pitch",
            true,
            format!("{} {store}", at("mul.lo.u32 %r10, %r0, 3; add.u32 %r10, %r10, %r1;", "%r10")),
        ),
    ];
    let make =
        |(name, races, body): (&str, bool, String)| code("overlapping stretches", name.to_owned(), races, 4, body);
    cases.into_iter().map(make).collect()
}

/// Threads are vertices of a ring, `%rd6` the own value, `%rd8` that of the next vertex.
fn graphs() -> Vec<Code> {
    let begin = "add.u32 %r10, %r2, STEP; and.b32 %r10, %r10, 255; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd6, %rd0, %rd5; mul.wide.u32 %rd7, %r10, 4; add.s64 %rd8, %rd0, %rd7; add.s64 %rd9, %rd8, 4096; add.s64 %rd11, %rd6, 4096;";
    let mut codes = Vec::new();
    for step in [1, 7, 32, 64, 100] {
        for (name, races, body) in [
            ("pull in place", true, "ld.global.u32 %r11, [%rd8]; add.u32 %r11, %r11, 1; st.global.u32 [%rd6], %r11;"),
            (
                "pull into another array",
                false,
                "ld.global.u32 %r11, [%rd8]; add.u32 %r11, %r11, 1; st.global.u32 [%rd11], %r11;",
            ),
            (
                "pull in place by volatile accesses",
                false,
                "ld.volatile.global.u32 %r11, [%rd8]; add.u32 %r11, %r11, 1; st.volatile.global.u32 [%rd6], %r11;",
            ),
            (
                "push plainly to two",
                true,
                "ld.global.u32 %r11, [%rd9]; add.u32 %r11, %r11, 1; st.global.u32 [%rd9], %r11; ld.global.u32 %r11, [%rd11]; add.u32 %r11, %r11, 1; st.global.u32 [%rd11], %r11;",
            ),
            ("push atomically to two", false, "red.global.add.u32 [%rd9], 1; red.global.add.u32 [%rd11], 1;"),
            ("push atomically, read plainly", true, "red.global.add.u32 [%rd8], 1; ld.global.u32 %r11, [%rd6];"),
            (
                "push atomically within the block",
                true,
                "red.cta.global.add.u32 [%rd9], 1; red.cta.global.add.u32 [%rd11], 1;",
            ),
            (
                "push to one of its own",
                false,
                "ld.global.u32 %r11, [%rd9]; add.u32 %r11, %r11, 1; st.global.u32 [%rd9], %r11;",
            ),
            (
                "read, change and write the own",
                false,
                "ld.global.u32 %r11, [%rd6]; add.u32 %r11, %r11, 1; st.global.u32 [%rd6], %r11;",
            ),
            ("mark the next", false, "st.global.u32 [%rd9], 1; st.global.u32 [%rd11], 1;"),
            (
                "mark the next with the own number",
                true,
                "add.u32 %r12, %r2, 1; st.global.u32 [%rd9], %r12; st.global.u32 [%rd11], %r12;",
            ),
        ] {
            // Within the block everything stays in the block only where no edge leaves it: each step here has one that does.
            let body = format!("{} {body}", begin.replace("STEP", &step.to_string()));
            codes.push(code("neighbours of a graph", format!("step {step}, {name}"), races, 4, body));
        }
    }
    codes
}
