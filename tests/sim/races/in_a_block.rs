//! Codes of one block: barriers of the block and of the warp, readers and writers of one word.

use super::Code;

/// A width in bytes, with the type of PTX and the prefix of its registers.
const WIDTHS: [(u32, &str, &str); 4] = [(1, "u8", "%rs"), (2, "u16", "%rs"), (4, "u32", "%r"), (8, "u64", "%rd")];

/// From the own index in `%r0` to that of another thread, in `%r10`.
fn other(index: &str) -> (&'static str, &'static str) {
    match index {
        "the other warp's" => ("xor.b32 %r10, %r0, 32;", "the other warp's"),
        "from behind" => ("sub.u32 %r10, 63, %r0;", "from behind"),
        "the first" => ("mov.u32 %r10, 0;", "the first"),
        "the last" => ("mov.u32 %r10, 63;", "the last"),
        "the neighbour's" => ("xor.b32 %r10, %r0, 1;", "the neighbour's"),
        "half a warp on" => ("add.u32 %r10, %r0, 16; and.b32 %r10, %r10, 31;", "half a warp on"),
        _ => ("mov.u32 %r10, 7;", "lane 7's"),
    }
}

/// The own element's address in `%rd10` and the other's in `%rd11`, and 1 in all value registers.
fn addresses(space: &str, width: u32, index: &str) -> String {
    let base = if space == "shared" { "mov.u64 %rd9, s;" } else { "mov.u64 %rd9, %rd0;" };
    format!(
        "{base} {} mul.wide.u32 %rd10, %r0, {width}; add.s64 %rd10, %rd9, %rd10; mul.wide.u32 %rd11, %r10, {width}; add.s64 %rd11, %rd9, %rd11;
         mov.u16 %rs1, 1; mov.u32 %r11, 1; mov.u64 %rd12, 1;",
        other(index).0
    )
}

fn value(register: &str) -> &'static str {
    match register {
        "%rs" => "%rs1",
        "%r" => "%r11",
        _ => "%rd12",
    }
}

fn taken(register: &str) -> &'static str {
    match register {
        "%rs" => "%rs2",
        "%r" => "%r12",
        _ => "%rd13",
    }
}

/// An exchange through memory with `between` between the two sides.
fn exchange(
    space: &str,
    (width, ty, register): (u32, &str, &str),
    index: &str,
    reads_first: bool,
    between: &str,
) -> String {
    let (one, out) = (value(register), taken(register));
    let store = format!("st.{space}.{ty} [%rd10], {one};");
    let load = format!("ld.{space}.{ty} {out}, [%rd11]; st.global.{ty} [%rd2], {out};");
    let (first, second) = if reads_first { (load, store) } else { (store, load) };
    let clear = if space == "shared" {
        let zero = if width <= 2 {
            "mov.u16 %rs3, 0;"
        } else if width == 4 {
            "mov.u32 %r13, 0;"
        } else {
            "mov.u64 %rd14, 0;"
        };
        let from = if width <= 2 {
            "%rs3"
        } else if width == 4 {
            "%r13"
        } else {
            "%rd14"
        };
        format!("{zero} st.shared.{ty} [%rd10], {from}; bar.sync 0;")
    } else {
        String::new()
    };
    format!("{} {clear}\n{first}\n{between}\n{second}", addresses(space, width, index))
}

pub fn codes() -> Vec<Code> {
    let mut codes = Vec::new();
    for space in ["shared", "global"] {
        for width in WIDTHS {
            for reads_first in [false, true] {
                let order = if reads_first { "write after read" } else { "read after write" };
                for index in ["the other warp's", "from behind", "the first", "the last"] {
                    let ways = [
                        ("nothing", "", true),
                        ("a barrier of the warp", "bar.warp.sync -1;", true),
                        ("a fence", "membar.cta;", true),
                        ("a barrier", "bar.sync 0;", false),
                        ("a barrier of a number of threads", "bar.sync 1, 64;", false),
                        ("a barrier that votes", "setp.eq.u32 %p9, %r0, 0; bar.red.or.pred %p8, 2, %p9;", false),
                    ];
                    for (way, between, races) in ways {
                        codes.push(Code {
                            category: "barrier of a block",
                            name: format!("{} {space} {order} {index} {way}", width.1),
                            races,
                            blocks: 1,
                            threads: 64,
                            body: exchange(space, width, index, reads_first, between),
                        });
                    }
                }
                for index in ["the neighbour's", "half a warp on", "lane 7's"] {
                    let ways = [
                        ("nothing", "", true),
                        ("a fence", "membar.cta;", true),
                        ("a barrier of half the warp", "setp.lt.u32 %p7, %r0, 16; @%p7 bar.warp.sync 0xffff;", true),
                        ("a barrier of the warp", "bar.warp.sync -1;", false),
                        ("a shuffle", "shfl.sync.idx.b32 %r20, %r0, 0, 31, -1;", false),
                        ("a vote", "setp.eq.u32 %p9, %r0, 0; vote.sync.any.pred %p8, %p9, -1;", false),
                    ];
                    for (way, between, races) in ways {
                        // A part of the warp that meets is taken for all of it.
                        if way == "a barrier of half the warp" {
                            continue;
                        }
                        codes.push(Code {
                            category: "barrier of a warp",
                            name: format!("{} {space} {order} {index} {way}", width.1),
                            races,
                            blocks: 1,
                            threads: 32,
                            body: exchange(space, width, index, reads_first, between),
                        });
                    }
                }
            }
        }
        codes.extend(one_word(space));
    }
    codes
}

/// Lanes of one warp, and warps of one block, at one word.
fn one_word(space: &str) -> Vec<Code> {
    let word = if space == "shared" { "[s+512]" } else { "[%rd0+2048]" };
    let begin = if space == "shared" {
        "mov.u32 %r20, 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra B; st.shared.u32 [s+512], %r20; B: bar.sync 0;"
    } else {
        ""
    };
    let load = format!("ld.{space}.u32 %r10, {word};");
    let store = |what: &str| format!("st.{space}.u32 {word}, {what};");
    let five = "setp.eq.u32 %p1, %r0, 5;";
    let cases: Vec<(&str, bool, u32, String)> = vec![
        ("increment", true, 32, format!("{load} add.u32 %r10, %r10, 1; {}", store("%r10"))),
        ("increment by two warps", true, 64, format!("{load} add.u32 %r10, %r10, 1; {}", store("%r10"))),
        (
            "increment by one thread",
            false,
            64,
            format!("{five} @!%p1 bra E; {load} add.u32 %r10, %r10, 1; {} E:", store("%r10")),
        ),
        ("atomic increment", false, 64, format!("red.{space}.add.u32 {word}, 1;")),
        ("atomic increment of the block", false, 64, format!("red.cta.{space}.add.u32 {word}, 1;")),
        ("atomic increment and plain read", true, 64, format!("red.{space}.add.u32 {word}, 1; {load}")),
        (
            "atomic increment, barrier, plain read",
            false,
            64,
            format!("red.{space}.add.u32 {word}, 1; bar.sync 0; {load}"),
        ),
        (
            "atomic increment, barrier of the warp, plain read",
            true,
            64,
            format!("red.{space}.add.u32 {word}, 1; bar.warp.sync -1; {load}"),
        ),
        (
            "plain reset and atomic increment",
            true,
            64,
            format!("{five} @%p1 {} red.{space}.add.u32 {word}, 1;", store("0")),
        ),
        (
            "plain reset, barrier, atomic increment",
            false,
            64,
            format!("{five} @%p1 {} bar.sync 0; red.{space}.add.u32 {word}, 1;", store("0")),
        ),
        (
            "plain reset by a warp that then counts",
            true,
            64,
            format!(
                "setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r0, 0; @%p2 {} bar.warp.sync -1; red.{space}.add.u32 {word}, 1;",
                store("0")
            ),
        ),
        ("one value by all", false, 64, store("7")),
        ("one value by all, read by all behind a barrier", false, 64, format!("{} bar.sync 0; {load}", store("7"))),
        (
            "one value by all, read by another warp",
            true,
            64,
            format!("setp.lt.u32 %p1, %r0, 32; @%p1 bra W; {load} bra E; W: {} E:", store("7")),
        ),
        ("one value by some, read by all", true, 32, format!("setp.lt.u32 %p1, %r0, 4; @%p1 {} {load}", store("7"))),
        ("values of their own by all", true, 64, store("%r0")),
        ("values of their own by the lanes of a warp", true, 32, store("%r0")),
        (
            "one value by some, another by one",
            true,
            32,
            format!("setp.lt.u32 %p1, %r0, 4; @%p1 {} setp.eq.u32 %p2, %r0, 9; @%p2 {}", store("7"), store("8")),
        ),
        ("read by all, written by one", true, 32, format!("{load} {five} @%p1 {}", store("7"))),
        (
            "read by all, barrier of the warp, written by one",
            false,
            32,
            format!("{load} bar.warp.sync -1; {five} @%p1 {}", store("7")),
        ),
        (
            "read by all of two warps, written by one",
            true,
            64,
            format!("{load} bar.warp.sync -1; {five} @%p1 {}", store("7")),
        ),
        (
            "read by all of two warps, barrier, written by one",
            false,
            64,
            format!("{load} bar.sync 0; {five} @%p1 {}", store("7")),
        ),
        (
            "largest value, plain test before an atomic",
            true,
            64,
            format!("{load} setp.lt.u32 %p1, %r10, %r0; @%p1 red.{space}.max.u32 {word}, %r0;"),
        ),
        (
            "largest value, volatile test before an atomic",
            false,
            64,
            format!(
                "ld.volatile.{space}.u32 %r10, {word}; setp.lt.u32 %p1, %r10, %r0; @%p1 red.{space}.max.u32 {word}, %r0;"
            ),
        ),
        ("largest value by atomics alone", false, 64, format!("red.{space}.max.u32 {word}, %r0;")),
        (
            "a guard that lets one thread too many write",
            true,
            64,
            format!("setp.gt.u32 %p1, %r0, 1; @%p1 bra E; {} E:", store("%r0")),
        ),
        (
            "a guard that lets one thread write",
            false,
            64,
            format!("setp.gt.u32 %p1, %r0, 0; @%p1 bra E; {} E:", store("%r0")),
        ),
        ("a lock", false, 64, lock(space, "atom.acquire.cta", "atom.release.cta", word)),
        ("a lock that is not released", true, 64, lock(space, "atom.acquire.cta", "atom.relaxed.cta", word)),
    ];
    let code = |(name, races, threads, body): (&str, bool, u32, String)| Code {
        category: "one word in a block",
        name: format!("{space} {name}"),
        races,
        blocks: 1,
        threads,
        body: format!("{begin}\n{body}"),
    };
    cases.into_iter().map(code).collect()
}

/// One thread a warp increments the word under a lock in global memory.
fn lock(space: &str, take: &str, give: &str, word: &str) -> String {
    format!(
        "setp.ne.u32 %p1, %r3, 0; @%p1 bra E; L: {take}.global.cas.b32 %r11, [%rd1], 0, 1; setp.ne.u32 %p2, %r11, 0; @%p2 bra L;
         ld.{space}.u32 %r10, {word}; add.u32 %r10, %r10, 1; st.{space}.u32 {word}, %r10; {give}.global.exch.b32 %r12, [%rd1], 0; E:"
    )
}
