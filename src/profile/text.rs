//! A profile as a person reads it.

use super::record::{Against, Counters, Hint, Part, ProfileRun, Slice};
use std::fmt::Write as _;

/// Rows of a table at the most; the rest is one.
const ROWS: usize = 14;

/// All tables of a profile.
pub fn table(run: &ProfileRun) -> String {
    let mut text = format!(
        "\n{} {} {}, {} on {}: {} runs by {}\n",
        run.subject, run.way, run.dtype, run.run, run.device, run.runs, run.source
    );
    let [low, high] = run.overhead_interval;
    let _ = write!(
        text,
        "a run takes {:.2} µs; traced {:.2} µs: tracing adds {:+.1} % ({:+.1} to {:+.1})",
        run.untraced_us,
        run.traced_us,
        100.0 * run.overhead,
        100.0 * low,
        100.0 * high,
    );
    if let (Some(covered), Some(mean_us)) = (run.covered(), run.traced_mean_us) {
        let share = 100.0 * covered;
        let _ = write!(text, "; parts and idle time are {share:.1} % of the traced runs' {mean_us:.2} µs");
    }
    text.push('\n');
    parts(&mut text, ("operator", "idle µs"), &run.operators);
    parts(&mut text, ("kernel", ""), &run.kernels);
    slices(&mut text, "bound by", &run.classes);
    slices(&mut text, "idle", &run.idle);
    if run.layers.len() > 1 {
        slices(&mut text, "layer", &run.layers);
    }
    memory(&mut text, run);
    if !run.hints.is_empty() {
        text.push_str(&hint_table(&run.hints));
    }
    run.against.iter().for_each(|other| text.push_str(&against(run, other)));
    run.counters.iter().for_each(|counters| text.push_str(&counter_table(counters)));
    text.push_str(&notes(&run.notes));
    text
}

/// What the hardware counted.
pub fn counter_table(counters: &Counters) -> String {
    let mut text = String::new();
    let same = 100.0 * counters.agreement;
    let _ = writeln!(
        text,
        "\n{:<40} {:>10} {:>9} {:>8} {:>10} {:>11} {:>7}  {:<8} ours",
        "Nsight Compute", "µs", "compute", "memory", "occupancy", "DRAM MB", "tensor", "bound"
    );
    for kernel in &counters.kernels {
        let ours = kernel.ours.map_or("-", |bound| bound.name());
        let [compute, memory, occupancy, tensor] =
            [kernel.compute, kernel.memory, kernel.occupancy, kernel.tensor].map(|share| 100.0 * share);
        let _ = writeln!(
            text,
            "{:<40} {:>10.2} {compute:>7.1} % {memory:>6.1} % {occupancy:>8.1} % {:>11.2} {tensor:>5.1} %  {:<8} {ours}",
            short(&kernel.name, 40),
            kernel.us,
            kernel.dram_bytes * 1e-6,
            kernel.bound.name(),
        );
    }
    let _ = writeln!(text, "the class is the same for {same:.0} % of the kernels");
    text
}

/// Notes, a line each.
pub fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}

fn parts(text: &mut String, (title, idle): (&str, &str), all: &[Part]) {
    let width = if idle.is_empty() { 0 } else { 9 };
    let _ = writeln!(
        text,
        "\n{title:<46} {:>8} {:>11} {:>7} {:>10} {:>10} {:>10}{idle:>width$} {:>8} {:>9} {:>8}  bound",
        "calls", "total µs", "share", "mean µs", "P50", "P95", "GB/s", "Gflop/s", "ceiling"
    );
    for part in all.iter().take(ROWS) {
        let rate = |per_s: f64| if per_s > 0.0 { format!("{per_s:.1}") } else { "-".into() };
        let ceiling = part.of_ceiling.map_or_else(|| "-".into(), |share| format!("{:.0} %", 100.0 * share));
        let bound = part.bound.map_or_else(String::new, |bound| bound.name().to_owned());
        let before = part.idle_us.map_or_else(String::new, |us| format!("{us:.2}"));
        let bound = if bound == "memory" { format!("{bound} ({})", part.level) } else { bound };
        let _ = writeln!(
            text,
            "{:<46} {:>8.1} {:>11.2} {:>5.1} % {:>10.2} {:>10.2} {:>10.2}{before:>width$} {:>8} {:>9} {ceiling:>8}  {bound}",
            short(&label(part), 46),
            part.calls,
            part.total_us,
            100.0 * part.share,
            part.mean_us,
            part.p50_us,
            part.p95_us,
            rate(part.gb_per_s()),
            rate(part.gflop_per_s()),
        );
    }
    let left = all.iter().skip(ROWS).filter(|part| part.within.is_empty());
    rest(text, all.len(), left.map(|part| (part.calls, part.total_us, part.share)));
}

/// What a part is called in a table: a step of several kernels says how many, and these stand below it.
fn label(part: &Part) -> String {
    if !part.within.is_empty() {
        return format!("  of it{}", part.name.strip_prefix(&part.within).unwrap_or(&part.name));
    }
    let each = part.kernels.map_or(1.0, |kernels| kernels / part.calls);
    let several = if each > 1.0 && !part.name.contains(' ') && part.name.contains("::") {
        format!(", {each:.0} kernels")
    } else {
        String::new()
    };
    let shape = if part.shape.is_empty() { String::new() } else { format!(" {}", part.shape) };
    format!("{}{several}{shape}", part.name)
}

fn slices(text: &mut String, title: &str, all: &[Slice]) {
    if all.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title:<46} {:>8} {:>11} {:>7}", "count", "total µs", "share");
    for slice in all.iter().take(ROWS) {
        let (count, us, share) = (slice.count, slice.us, 100.0 * slice.share);
        let _ = writeln!(text, "{:<46} {count:>8.1} {us:>11.2} {share:>5.1} %", short(&slice.name, 46));
    }
    rest(text, all.len(), all.iter().skip(ROWS).map(|slice| (slice.count, slice.us, slice.share)));
}

fn rest(text: &mut String, all: usize, left: impl Iterator<Item = (f64, f64, f64)>) {
    if all > ROWS {
        let sum = left.fold((0.0, 0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        let name = format!("{} others", all - ROWS);
        let _ = writeln!(text, "{name:<46} {:>8.1} {:>11.2} {:>5.1} %", sum.0, sum.1, 100.0 * sum.2);
    }
}

fn memory(text: &mut String, run: &ProfileRun) {
    if run.memory.peak_bytes == 0 {
        return;
    }
    let mb = |bytes: u64| bytes as f64 * 1e-6;
    let alive: Vec<String> =
        run.memory.alive.iter().take(6).map(|held| format!("{} {:.3} MB", held.name, mb(held.bytes))).collect();
    let more = run.memory.alive.len().saturating_sub(6);
    let more = if more > 0 { format!(", {more} more") } else { String::new() };
    let _ = writeln!(
        text,
        "\nmemory: at most {:.3} MB, {:.0} µs into the run; alive then: {}{more}",
        mb(run.memory.peak_bytes),
        run.memory.peak_us,
        alive.join(", ")
    );
}

/// Hints, and what came of those that were tried.
pub fn hint_table(hints: &[Hint]) -> String {
    let mut text = format!("\n{:<10} {:>12} {:>12} {:>10}  what\n", "hint", "predicted µs", "realised µs", "by");
    for hint in hints {
        let realised = hint.applied.map_or_else(|| "-".into(), |applied| format!("{:.2}", applied.gain_us()));
        let _ = writeln!(
            text,
            "{:<10} {:>12.2} {realised:>12} {:>10}  {}: {}",
            hint.rule, hint.gain_us, hint.basis, hint.place, hint.action
        );
        let _ = writeln!(text, "{:48}{}", "", hint.evidence);
        if !hint.not_applied.is_empty() {
            let _ = writeln!(text, "{:48}not applied: {}", "", hint.not_applied);
        }
    }
    text
}

/// The same beside another way.
pub fn against(run: &ProfileRun, other: &Against) -> String {
    let mut text = format!("\n{:<28} {:>16} {:>16} {:>10}\n", "", run.way, other.way, "ratio");
    let mut row = |name: &str, ours: f64, theirs: f64, digits: usize| {
        let _ = writeln!(text, "{name:<28} {ours:>16.digits$} {theirs:>16.digits$} {:>10.3}", ours / theirs);
    };
    row("time of a run, µs", run.untraced_us, other.untraced_us, 2);
    row("launches a run", other.launches[0], other.launches[1], 1);
    row("peak of memory, MB", other.peak_bytes[0] as f64 * 1e-6, other.peak_bytes[1] as f64 * 1e-6, 3);
    if let Some([ours, theirs]) = other.perplexity {
        row("perplexity", ours, theirs, 4);
    }
    let _ = match (other.largest_difference, other.relative_difference) {
        (Some(largest), Some(relative)) => {
            writeln!(text, "largest difference of outputs {largest:.3e}, {relative:.3e} of the largest output")
        }
        _ => writeln!(text, "the outputs differ: one has a NaN or an infinity that the other has not"),
    };
    text
}

/// At most so many characters: the middle is left out.
fn short(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.into();
    }
    let (head, tail) = (most / 2, most - most / 2 - 1);
    let all: Vec<char> = text.chars().collect();
    format!("{}…{}", all[..head].iter().collect::<String>(), all[count - tail..].iter().collect::<String>())
}
