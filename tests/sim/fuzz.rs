//! Damaged PTX: an error or a report comes, soon; never a panic, never a result that looks right.
//!
//! `KERNELGATE_FUZZ=10000 cargo test --release --test sim fuzz` runs as many inputs as it says, from the seed in
//! `KERNELGATE_FUZZ_SEED`. With `ptxas` at hand (`PTXAS=path`) it also judges the texts that the simulator takes for
//! right.

use super::hangs::processor_time;
use super::mutation;
use super::subject::{self, Subject};
use kernelgate::core::seed::{Rng, below, rng};
use kernelgate::sim::{Error, Module, Options};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What an ordinary test run takes the time for.
const FEW: usize = 600;
const LONGEST: Duration = Duration::from_secs(1);
const HOSTILE: [&str; 10] = [
    "0",
    "-1",
    "1",
    "2147483647",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
    "0xFFFFFFFFFFFFFFFF",
    "1073741824",
];

/// A damaged text, and whether it cannot mean what the whole one means.
struct Damaged {
    text: String,
    how: &'static str,
    must_not_pass: bool,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Where words and numbers stand.
fn words(text: &str) -> Vec<std::ops::Range<usize>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_.%$".contains(c);
    let mut out = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices() {
        match (start, is_word(c)) {
            (None, true) => start = Some(at),
            (Some(first), false) => {
                out.push(first..at);
                start = None;
            }
            _ => {}
        }
    }
    out
}

fn replaced(text: &str, range: std::ops::Range<usize>, by: &str) -> String {
    format!("{}{by}{}", &text[..range.start], &text[range.end..])
}

fn damage(subject: &Subject, rng: &mut Rng) -> Damaged {
    let ptx = subject.ptx.as_ref();
    let lines: Vec<&str> = ptx.lines().collect();
    let body = mutation::body(ptx, &subject.launch.entry);
    match below(rng, 8) {
        0 => {
            let mut text = ptx.to_owned();
            for _ in 0..=below(rng, 4) {
                let all = mutation::all(&text, &subject.launch.entry);
                if !all.is_empty() {
                    text = all[below(rng, all.len())].apply(&text);
                }
            }
            Damaged { text, how: "slips", must_not_pass: false }
        }
        1 => {
            let cut = below(rng, ptx.len());
            let text = String::from_utf8_lossy(&ptx.as_bytes()[..cut]).into_owned();
            let end: usize = lines[..body.end].iter().map(|line| line.len() + 1).sum();
            Damaged { text, how: "cut off", must_not_pass: cut < end }
        }
        2 => {
            let mut bytes = ptx.as_bytes().to_vec();
            for _ in 0..=below(rng, 8) {
                let at = below(rng, bytes.len());
                bytes[at] = below(rng, 256) as u8;
            }
            Damaged { text: String::from_utf8_lossy(&bytes).into_owned(), how: "noise", must_not_pass: false }
        }
        3 => {
            let all = words(ptx);
            let (a, b) = (all[below(rng, all.len())].clone(), all[below(rng, all.len())].clone());
            let text = replaced(ptx, a, &ptx[b]);
            Damaged { text, how: "word replaced", must_not_pass: false }
        }
        4 => {
            let numbers: Vec<_> =
                words(ptx).into_iter().filter(|range| ptx[range.clone()].parse::<i64>().is_ok()).collect();
            let at = numbers[below(rng, numbers.len())].clone();
            let text = replaced(ptx, at, HOSTILE[below(rng, HOSTILE.len())]);
            Damaged { text, how: "hostile number", must_not_pass: false }
        }
        5 => {
            let mut lines = lines;
            lines.remove(below(rng, lines.len()));
            Damaged { text: lines.join("\n"), how: "line removed", must_not_pass: false }
        }
        6 => {
            let mut lines = lines;
            let (a, b) = (below(rng, lines.len()), below(rng, lines.len()));
            lines.swap(a, b);
            Damaged { text: lines.join("\n"), how: "lines swapped", must_not_pass: false }
        }
        _ => {
            let mut lines = lines;
            let line = lines[below(rng, lines.len())];
            let at = below(rng, lines.len());
            lines.insert(at, line);
            Damaged { text: lines.join("\n"), how: "line repeated", must_not_pass: false }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Refused,
    Unsupported,
    Reported,
    Wrong,
    Right,
}

fn end(subject: &Subject, text: &str) -> End {
    let refused = |error: Error| match error {
        Error::Unsupported { .. } => End::Unsupported,
        _ => End::Refused,
    };
    let options = Options { work_budget: 300_000, ..Options::default() };
    let run = |module: Module| {
        // A driver takes the text as a whole: every entry has to be good.
        module.entries().try_for_each(|entry| module.check(entry))?;
        subject.run(&module, &options)
    };
    match Module::parse(text).and_then(run) {
        Err(error) => refused(error),
        Ok(outcome) if !outcome.findings.is_empty() => End::Reported,
        Ok(outcome) if subject.wrong(&outcome, &options) > 0 => End::Wrong,
        Ok(_) => End::Right,
    }
}

/// What `ptxas` says against a text, if it is there.
fn refusal(text: &str) -> Option<String> {
    let ptxas = std::env::var_os("PTXAS").map(PathBuf::from)?;
    let folder = tempfile::tempdir().ok()?;
    let file = folder.path().join("damaged.ptx");
    // Triton writes the newest version; what it uses is older, and so may be the assembler.
    std::fs::write(&file, text.replacen(".version 9.4", ".version 8.7", 1)).ok()?;
    let target = text.lines().find_map(|line| line.trim().strip_prefix(".target")).unwrap_or("sm_90a");
    let arch = format!("-arch={}", target.trim().split(',').next().unwrap_or("sm_90a"));
    let output = Command::new(ptxas).arg(arch).args(["-o", "/dev/null"]).arg(&file).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Without the names of this text: what kind of refusal it is.
    let kind = said.lines().next().unwrap_or_default().rsplit("   : ").next().unwrap_or_default();
    let kind: Vec<&str> = kind.split('\'').step_by(2).collect();
    let kind = kind.join("…");
    let kind = kind.trim_end_matches(|c: char| c.is_ascii_digit() || c.is_whitespace());
    (!output.status.success()).then(|| if kind.is_empty() { "(nothing)".to_owned() } else { kind.to_owned() })
}

#[test]
fn damaged_texts_neither_panic_nor_hang_nor_pass() {
    let count = number("KERNELGATE_FUZZ").map_or(FEW, |count| count as usize);
    let seed = number("KERNELGATE_FUZZ_SEED").unwrap_or(1);
    // The last shape of each is a small one.
    let subjects: Vec<Subject> = subject::fixtures().into_iter().filter_map(|mut group| group.subjects.pop()).collect();
    let mut rng = rng(seed);
    let mut ends = [0usize; 5];
    let mut slowest = Duration::ZERO;
    let mut bad = Vec::new();
    let mut judged = 0;
    // What an assembler says against texts that compute what they should.
    let mut laxer: BTreeMap<String, usize> = BTreeMap::new();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let timed = |subject: &Subject, text: &str| {
        pool.install(|| {
            let start = processor_time();
            let end = catch_unwind(AssertUnwindSafe(|| end(subject, text)));
            (end, processor_time() - start)
        })
    };
    for number in 0..count {
        let subject = &subjects[number % subjects.len()];
        let damaged = damage(subject, &mut rng);
        let place = format!("input {number}: {}, {}", subject.name, damaged.how);
        let (end, time) = timed(subject, &damaged.text);
        let Ok(end) = end else {
            bad.push(format!("{place}: panic"));
            continue;
        };
        slowest = slowest.max(time);
        ends[end as usize] += 1;
        if time > LONGEST {
            bad.push(format!("{place}: {time:?}"));
        }
        if end == End::Right && damaged.must_not_pass {
            bad.push(format!("{place}: passes"));
        }
        if end == End::Right && *damaged.text != *subject.ptx && std::env::var_os("PTXAS").is_some() {
            judged += 1;
            if let Some(why) = refusal(&damaged.text) {
                *laxer.entry(why).or_default() += 1;
            }
        }
    }
    let [refused, unsupported, reported, wrong, right] = ends;
    let mut report = format!(
        "{count} damaged texts, seed {seed}: {refused} refused, {unsupported} unsupported, {reported} with findings, {wrong} with wrong \
         results, {right} unharmed ({judged} of those judged by ptxas). Longest {} ms.\n",
        slowest.as_millis()
    );
    if !laxer.is_empty() {
        report += &format!(
            "\n{} of those judged are right here and no PTX for ptxas, which says:\n\n",
            laxer.values().sum::<usize>()
        );
        laxer.iter().for_each(|(why, count)| report += &format!("- {count} times: {why}\n"));
    }
    for line in &bad {
        report += &format!("- {line}\n");
    }
    println!("{report}");
    if count >= 10_000 {
        super::evidence::write("simulator-fuzz.md", "Damaged PTX", &report);
    }
    assert!(bad.is_empty(), "{report}");
}
