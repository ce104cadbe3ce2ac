//! How many small slips in right kernels the simulator notices.
//!
//! `KERNELGATE_WRITE=docs cargo test --release --test sim mutants` writes the table that the documentation shows.

use super::mutation::{self, Mutation};
use super::subject::{self, Group, Subject};
use super::{catalogue, equivalence, equivalent};
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
                    let reason = equivalent::argument(&subject.name, slip, before)
                        .or_else(|| equivalence::argument(&subject.ptx, mutation));
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
    super::evidence::write("simulator-mutants.md.xz", "Mutants of right kernels", &report);
    assert!(all >= 150 && of_async[0] >= 20, "{all} mutants, {of_async:?} asynchronous");
    let real = all - argued;
    assert!(found * 100 >= 95 * real, "{found} of {real} found:\n{survivors}");
}
