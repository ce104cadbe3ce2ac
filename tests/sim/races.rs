//! Small codes that race, beside such that do not: every racy one has to be found, none of the others accused.
//!
//! `KERNELGATE_WRITE=docs cargo test --release --test sim races -- --nocapture` prints the table and writes it.

mod between_blocks;
mod in_a_block;
mod parts;

use kernelgate::sim::{Check, Launch, Memory, Module, Options, WarpOrder, launch};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One code: a kernel `k` of blocks of 64 threads.
pub struct Code {
    category: &'static str,
    name: String,
    races: bool,
    blocks: u32,
    threads: u32,
    body: String,
}

/// What all codes begin with: `%r0` thread, `%r1` block, `%r2` thread of the grid, `%r3` lane, `%r4` warp; `%rd0` data,
/// `%rd1` flags (zeroed), `%rd2` an own result.
const BEGIN: &str = "ld.param.u64 %rd0, [data]; ld.param.u64 %rd1, [flags]; ld.param.u64 %rd2, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r5, %ntid.x; mad.lo.u32 %r2, %r1, %r5, %r0;
mov.u32 %r3, %laneid; mov.u32 %r4, %warpid; mul.wide.u32 %rd3, %r2, 8; add.s64 %rd2, %rd2, %rd3;";

const WORDS: usize = 1024;

impl Code {
    fn text(&self) -> String {
        format!(
            ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 data, .param .u64 flags, .param .u64 out) {{\n\
             .reg .b16 %rs<20>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .pred %p<20>; .shared .align 8 .b8 s[1024];\n\
             {BEGIN}\n{}\nret;\n}}",
            self.body
        )
    }

    /// The races that the runs of a gate find.
    fn found(&self) -> Vec<Check> {
        let text = self.text();
        let module = Module::parse(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", self.name));
        let orders = [
            (0, WarpOrder::Ascending),
            (0, WarpOrder::Descending),
            (5, WarpOrder::Seeded),
            (6, WarpOrder::Seeded),
            (7, WarpOrder::Seeded),
        ];
        let mut found = Vec::new();
        for (seed, warp_order) in orders {
            let mut memory = Memory::new();
            let mut buffer = || memory.alloc(8 * WORDS as u64, Some(&[0; 8 * WORDS])).expect("memory");
            let call = Launch::new("k", self.blocks, self.threads).arg(buffer()).arg(buffer()).arg(buffer());
            let options = Options { seed, warp_order, ..Options::default() };
            let report =
                launch(&module, &call, &mut memory, &options).unwrap_or_else(|e| panic!("{}: {e}\n{text}", self.name));
            let racy = [Check::RaceGlobal, Check::RaceShared, Check::MissingSyncwarp];
            let checks: Vec<Check> = report.findings.iter().map(|finding| finding.check).collect();
            let other = checks.iter().find(|check| !racy.contains(check));
            assert!(other.is_none(), "{}: {}\n{text}", self.name, report.findings[0]);
            found.extend(checks);
        }
        found
    }
}

#[test]
fn every_race_is_found_and_no_other_code_is_accused() {
    let codes: Vec<Code> =
        [in_a_block::codes(), parts::codes(), between_blocks::codes()].into_iter().flatten().collect();
    // Racy ones, those found, others, those accused.
    let mut counts: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut wrong = Vec::new();
    for code in &codes {
        let found = code.found();
        let count = counts.entry(code.category).or_default();
        let at = if code.races { 0 } else { 2 };
        count[at] += 1;
        count[at + 1] += usize::from(!found.is_empty());
        if found.is_empty() == code.races {
            wrong.push(format!("{}, {}: races {}, found {found:?}", code.category, code.name, code.races));
        }
    }
    let mut table = String::from("| kind | racy | found | free of races | accused |\n|---|---|---|---|---|\n");
    let mut total = [0; 4];
    for (category, count) in &counts {
        let [racy, found, free, accused] = count;
        let _ = writeln!(table, "| {category} | {racy} | {found} | {free} | {accused} |");
        total.iter_mut().zip(count).for_each(|(total, count)| *total += count);
    }
    let [racy, found, free, accused] = total;
    let _ = writeln!(table, "| all | {racy} | {found} | {free} | {accused} |");
    println!("{table}");
    assert!(wrong.is_empty(), "{}\n{table}", wrong.join("\n"));
    assert!(racy >= 150 && free >= 100, "{table}");
    super::evidence::write("simulator-races.md", "Codes that race, and such that do not", &table);
}
