//! How many small slips in right kernels the simulator notices.
//!
//! `KERNELGATE_WRITE=docs cargo test --release --test sim mutants` writes the table that the documentation shows.

use super::mutation::{self, Mutation};
use super::subject::{self, Group, Subject};
use super::{catalogue, equivalence};
use kernelgate::core::seed::{below, derive, rng};
use kernelgate::sim::{Checks, Error, Module, Options};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Of each subject.
const MUTANTS: usize = 14;
const SEED: u64 = 1;
/// A mutant that loops for ever need not do so for long.
const WORK_BUDGET: u64 = 3_000_000;

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// The text is refused: no mutant at all.
    Refused,
    Found(String),
    Survived,
}

const SPLIT: &str = "Splits an exponent into two parts, the second of which makes up for the first.";
const LOW_PART: &str = "The low part of a constant, or the last term of a series: far below the tolerance.";
const SLOWER_WAY: &str = "Sends every row the way of rows that do not fill their packs, which is right for all.";
const PAST_THE_LAST: &str = "What is in flight then are slices past the last, into stages that nobody reads again; \
    of shared memory only the totals behind them are touched.";
const SAME_LANES: &str = "All lanes hold the reduced value: another one stores the same bits to the same place.";
const NEVER_FEW: &str = "Read only where a block has fewer packs than any plan gives it.";
const UNDEFINED: &str = "Differs for an id outside the table only, which the operator does not define.";
const NAN_MAXIMUM: &str = "The maximum of NaN and a number is the number.";
const LONG_DIVISION: &str = "Chooses a short division where the numbers fit; the long one is right too.";
const ABSENT: &str =
    "What one factor has past the end of k meets zeros of the other; past its rows or columns none is stored.";
const LOADS_FIRST: &str =
    "Keeps the compiler from moving loads to their uses: the lanes pass each other nothing there.";
const MORE_LEFT: &str = "Every row of this entry has more columns than that from each lane on.";
const TAIL: &str =
    "From 10 to 14 the polynomial of the tail falls from 2^-76 to 2^-172: nothing of it is left beside x.";
const ALWAYS_ZERO: &str = "The bit that is kept in addition is always 0.";

/// Survivors that are as right as the kernel: how the subject starts, the slip, a part of the line before the change, and
/// why.
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[
    ("bmm cuda_v2", "wait dropped", "cp.async.wait_group 0;", PAST_THE_LAST),
    ("bmm cuda_v2", "waits for too little", "cp.async.wait_group 0;", PAST_THE_LAST),
    ("linear cuda_v2", "wait dropped", "cp.async.wait_group 0;", PAST_THE_LAST),
    ("linear cuda_v2", "waits for too little", "cp.async.wait_group 0;", PAST_THE_LAST),
    (
        "bulk_pipeline sum_rows",
        "comparison off by one",
        ", 255;",
        "The length of a row is a multiple of 256, never 255.",
    ),
    ("cluster row_max", "comparison off by one", "setp.ne.s32", SAME_LANES),
    ("cluster row_max", "guard negated", "bra", SAME_LANES),
    ("cluster row_max", "constant wrong", "0fFF800000", NAN_MAXIMUM),
    ("cluster row_max", "wrong block of the cluster", "mapa", "The register held 0, the block that gathers."),
    ("cluster ring", "constant off by one", "setp.ne.s32", "Thread 1 instead of thread 0 makes the objects."),
    (
        "cluster ring",
        "fence dropped",
        "mbarrier_init",
        "The cluster barrier behind it orders ordinary arrivals as well.",
    ),
    (
        "triton matmul sm_80",
        "barrier dropped",
        "bar.sync",
        "No copy was issued since the wait and barrier before the loop.",
    ),
    ("triton matmul sm_80", "wait dropped", "wait_group", "No copy was issued since the wait before the loop."),
    (
        "triton matmul sm_80",
        "waits for too little",
        "wait_group \t0",
        "The last group is empty: it lies past the last step.",
    ),
    (
        "triton matmul sm_80",
        "constant wrong",
        "0f00000000",
        "The loop, which always runs, starts from other registers.",
    ),
    ("triton", "constant off by one", ", 508;", ALWAYS_ZERO),
    ("triton", "constant off by one", ", 2048;", ALWAYS_ZERO),
    ("gelu triton", "constant off by one", ", 508;", ALWAYS_ZERO),
    ("silu triton", "constant off by one", ", 508;", ALWAYS_ZERO),
    ("gelu cuda", "operands swapped", "sub.f32", "Only the size of the difference is used."),
    ("layernorm cuda", "operands swapped", "sub.f32", "Only the square of the difference of two means is used."),
    ("", "constant wrong", "0f32A57060", LOW_PART),
    ("", "constant wrong", "0fB6A6AA1A", LOW_PART),
    ("", "constant wrong", "0f349D4480", LOW_PART),
    ("embedding lesson2_vectorised", "other operation", ", 3;", SLOWER_WAY),
    ("rmsnorm cuda", "other operation", ", 3;", SLOWER_WAY),
    ("embedding lesson1_naive", "guard dropped", "bra", UNDEFINED),
    ("gelu cuda", "constant wrong", "0f41200000", TAIL),
    ("layernorm_gelu cuda", "constant wrong", "0f41200000", TAIL),
    ("", "constant wrong", "0f3BBB989D", SPLIT),
    ("gelu_tanh", "addend forgotten", "fma.rn.f32", SPLIT),
    ("softmax", "constant wrong", "0fFF800000", NAN_MAXIMUM),
    ("gemm cuda_v1", "branch dropped", "bra", LONG_DIVISION),
    ("bmm cuda_v1", "branch dropped", "bra", LONG_DIVISION),
    ("gemm cuda_v6 gemm_v6_any", "constant wrong", "0f00000000", ABSENT),
    ("bmm cuda_v3", "constant wrong", "0f00000000", ABSENT),
    ("split_k", "constant wrong", "%f165, 0f00000000", ABSENT),
    ("split_k", "comparison off by one", "%p50, %r75, %r86", ABSENT),
    (
        "split_k",
        "other operation",
        "%r104, %r103, -32",
        "Goes into the rounds that are left over from four at a time: there are none.",
    ),
    ("function_table", "constant off by one", ", 24;", ALWAYS_ZERO),
    (
        "linear cuda_v1",
        "comparison off by one",
        "setp.ge.s32",
        "The column of an output is what a division by n leaves: it is never n.",
    ),
    (
        "embedding lesson2_vectorised",
        "constant off by one",
        ", -1;",
        "Stands in for the id of a row past the end, of which nothing is stored; every table has a row 0.",
    ),
    (
        "embedding cuda embedding_shifted_packs",
        "comparison off by one",
        "setp.ge.s32 %p32",
        "A row has no fewer columns than threads: none of them stands at its end.",
    ),
    ("layernorm cuda layernorm_elements_two_warps", "comparison off by one", ", 1;", MORE_LEFT),
    ("layernorm cuda layernorm_elements_warp", "comparison off by one", ", 33;", MORE_LEFT),
    ("layernorm cuda layernorm_elements_warp", "comparison off by one", ", 193;", MORE_LEFT),
    ("rmsnorm cuda rmsnorm_elements_warp", "comparison off by one", ", 33;", MORE_LEFT),
    ("rmsnorm cuda rmsnorm_elements_warp", "constant off by one", ", 193;", MORE_LEFT),
    ("rmsnorm cuda rmsnorm_elements_warp", "constant off by one", ", 225;", MORE_LEFT),
    ("gemv cuda_v2 gemv_v2", "barrier dropped", "bar.warp.sync", LOADS_FIRST),
    (
        "gemv cuda_v2 gemv_v2",
        "barrier dropped",
        "bar.sync",
        "A team is one warp there, whose first lane reads what it wrote itself.",
    ),
    ("gemv cuda_v4 gemv_v3_few", "barrier dropped", "bar.warp.sync", LOADS_FIRST),
    ("gemv cuda_v4 gemv_v4", "barrier dropped", "bar.warp.sync", LOADS_FIRST),
    ("layernorm lesson3_registers layernorm_registers_block", "constant wrong", "0f00000000", NEVER_FEW),
    (
        "row_sum cuda row_sum_pack_loop_block",
        "branch dropped",
        "$L__BB3_39",
        "Sends all warps through the sum of up to 32 parts, where those that no warp wrote are 0.",
    ),
    (
        "row_sum cuda row_sum_pack_loop_warp",
        "comparison off by one",
        "setp.ge.s32",
        "The loop runs over whole groups of packs only: no lane stands at the end.",
    ),
    ("gemm cuda_v", "comparison off by one", ", -62;", "Whether a positive k makes a slice at all."),
    (
        "embedding cuda embedding_output_packs",
        "operands swapped",
        "div.u32 %r71",
        "What the first row of a block leaves is divided again: it may be any row before.",
    ),
    (
        "embedding cuda embedding_output_packs",
        "guard dropped",
        "@%p59",
        "Sends every second pack the way of elements one by one, which is right for all.",
    ),
    ("embedding", "comparison off by one", "setp.lt.s32", UNDEFINED),
    ("embedding", "comparison off by one", "setp.gt.s32", UNDEFINED),
    ("embedding", "constant wrong", "0f7FFFFFFF", UNDEFINED),
];

fn judge(group: &Group, text: &str) -> Fate {
    let Ok(module) = Module::parse(text) else { return Fate::Refused };
    let modes: Vec<_> = subject::fixed_modes().into_iter().chain(subject::seeded_modes(7)).collect();
    let thorough = group.subjects.iter().map(|subject| judge_one(subject, &module, &modes));
    let quick = group.further.iter().map(|subject| judge_one(subject, &module, &modes[..1]));
    thorough.chain(quick).find(|fate| *fate != Fate::Survived).unwrap_or(Fate::Survived)
}

fn judge_one(subject: &Subject, module: &Module, modes: &[(&str, Options)]) -> Fate {
    for (mode, options) in modes {
        let options = Options { work_budget: WORK_BUDGET, ..*options };
        let outcome = match subject.run(module, &options) {
            Ok(outcome) => outcome,
            Err(Error::Parse { .. } | Error::Unsupported { .. }) => return Fate::Refused,
            Err(Error::Launch(_)) => return Fate::Found("launch refused".into()),
        };
        if let Some(finding) = outcome.findings.first() {
            return Fate::Found(finding.check.name().into());
        }
        if subject.wrong(&outcome, &options) > 0 {
            return Fate::Found(if *mode == "in order" { "values".into() } else { format!("values ({mode})") });
        }
    }
    Fate::Survived
}

/// The lines (from 0) that some shape of the kernel executes: a slip in dead code changes nothing.
fn executed(group: &Group) -> BTreeSet<usize> {
    let mut lines = BTreeSet::new();
    let Some(first) = group.subjects.first() else { return lines };
    // Without line information every PTX line is counted by itself.
    let bare = |line| if str::trim_start(line).starts_with(".loc ") { "" } else { line };
    let text: Vec<&str> = first.ptx.lines().map(bare).collect();
    let module = Module::parse(&text.join("\n")).expect("the text of a right kernel");
    for subject in &group.subjects {
        let outcome = subject.run(&module, &Options { checks: Checks::NONE, ..Options::default() });
        let launches = outcome.map(|outcome| outcome.metrics).unwrap_or_default();
        let entries = std::iter::once(&subject.launch).chain(subject.then.iter().map(|(launch, _)| launch));
        for (metrics, _) in launches.iter().zip(entries).filter(|(_, launch)| launch.entry == first.launch.entry) {
            let ran = metrics.lines.iter().filter(|line| line.lane_instructions > 0);
            lines.extend(ran.map(|line| line.ptx_line as usize - 1));
        }
    }
    lines
}

/// The entries that some shape of the kernel launches.
fn entries(group: &Group) -> BTreeSet<&str> {
    let subjects = group.subjects.iter().chain(&group.further);
    let launches =
        subjects.flat_map(|subject| [&subject.launch].into_iter().chain(subject.then.iter().map(|(l, _)| l)));
    launches.map(|launch| launch.entry.as_str()).collect()
}

/// A seeded choice in which every kind of slip has its share.
fn choose(group: &Group) -> Vec<Mutation> {
    let Some(subject) = group.subjects.first() else { return Vec::new() };
    let executed = executed(group);
    let mut by_slip: BTreeMap<&str, Vec<Mutation>> = BTreeMap::new();
    for mutation in mutation::all(&subject.ptx, &subject.launch.entry) {
        if executed.contains(&mutation.line) {
            by_slip.entry(mutation.slip).or_default().push(mutation);
        }
    }
    let mut rng = rng(derive(SEED, &[&subject.name]));
    let mut chosen = Vec::new();
    while chosen.len() < MUTANTS && by_slip.values().any(|list| !list.is_empty()) {
        for list in by_slip.values_mut().filter(|list| !list.is_empty()) {
            let pick = below(&mut rng, list.len());
            chosen.push(list.swap_remove(pick));
        }
    }
    // The last round may overshoot: what goes is drawn too.
    while chosen.len() > MUTANTS {
        let pick = below(&mut rng, chosen.len());
        chosen.remove(pick);
    }
    chosen
}

#[test]
fn small_slips_are_noticed() {
    let fixtures = subject::fixtures();
    let mut table =
        String::from("| kernel | mutants | found | by checks | by values | survived |\n|---|---|---|---|---|---|\n");
    let mut survivors = String::new();
    let mut total = [0usize; 5];
    let mut of_async = [0usize; 3];
    let mut by_finder: BTreeMap<String, usize> = BTreeMap::new();
    let (mut refused, mut argued) = (0, 0);
    for group in fixtures.iter().chain(catalogue::kernels()) {
        let Some(subject) = group.subjects.first() else { continue };
        let mut row = [0usize; 5];
        let argued_before = argued;
        let chosen = choose(group);
        let alone = mutation::alone(&subject.ptx, &entries(group));
        let fates: Vec<Fate> = chosen.par_iter().map(|slip| judge(group, &slip.apply(&alone))).collect();
        for (mutation, fate) in chosen.iter().zip(&fates) {
            match fate {
                Fate::Refused => {
                    refused += 1;
                    continue;
                }
                Fate::Found(finder) => {
                    *by_finder.entry(finder.clone()).or_default() += 1;
                    row[1] += 1;
                    row[if finder.starts_with("values") { 3 } else { 2 }] += 1;
                }
                Fate::Survived => {
                    let before = subject.ptx.lines().nth(mutation.line).unwrap_or_default().trim();
                    let (slip, after) = (mutation.slip, mutation.after.trim());
                    let known = EQUIVALENT
                        .iter()
                        .find(|known| subject.name.starts_with(known.0) && slip == known.1 && before.contains(known.2));
                    let reason = known.map(|known| known.3).or_else(|| equivalence::argument(&subject.ptx, mutation));
                    argued += usize::from(reason.is_some());
                    let reason = reason.unwrap_or("Not explained.");
                    let line = mutation.line + 1;
                    let _ = writeln!(
                        survivors,
                        "- {} line {line}, {slip}: `{before}` became `{after}`. {reason}",
                        subject.name
                    );
                    row[4] += 1;
                }
            }
            row[0] += 1;
        }
        let [all, found, checks, values, survived] = row;
        let _ = writeln!(table, "| {} | {all} | {found} | {checks} | {values} | {survived} |", subject.name);
        (0..5).for_each(|at| total[at] += row[at]);
        if subject.is_async {
            of_async = [of_async[0] + all, of_async[1] + found, of_async[2] + argued - argued_before];
        }
    }
    let [all, found, checks, values, survived] = total;
    let _ = writeln!(table, "| all | {all} | {found} | {checks} | {values} | {survived} |");
    let finders: Vec<String> = by_finder.iter().map(|(finder, count)| format!("{finder} {count}")).collect();
    let report = format!(
        "{found} of {all} mutants were found, {:.1} % of all. {argued} of the others are argued to be as right as the kernel: {:.1} % of the rest were found.\n\n{table}\n{refused} further changes gave no valid PTX. Asynchronous and cluster kernels: {} of {} found, {} of the others argued.\nFound first by: {}.\n\nSurvivors:\n{survivors}",
        100.0 * found as f64 / all as f64,
        100.0 * found as f64 / (all - argued) as f64,
        of_async[1],
        of_async[0],
        of_async[2],
        finders.join(", ")
    );
    println!("{report}");
    super::evidence::write("simulator-mutants.md", "Mutants of right kernels", &report);
    assert!(all >= 150 && of_async[0] >= 20, "{all} mutants, {of_async:?} asynchronous");
    let real = all - argued;
    assert!(found * 100 >= 95 * real, "{found} of {real} found:\n{survivors}");
}
