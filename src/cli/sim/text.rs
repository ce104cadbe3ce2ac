//! The account of simulated runs for people: findings, counts, and a table by source line.

use super::{Account, Run};
use crate::sim::{LineCount, Metrics, Traffic, source_name};
use std::collections::HashMap;

/// Longest piece of a source line in the table.
const EXCERPT: usize = 64;

/// Everything, in lines of text. `ptx` serves for excerpts where there is no source.
pub fn describe(account: &Account, ptx: &str) -> String {
    let extent = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    let mut text = format!(
        "{} of {}: grid {}, block {}",
        source_name(&account.entry),
        account.file,
        extent(account.grid),
        extent(account.block)
    );
    if account.cluster != [1; 3] {
        text += &format!(", cluster {}", extent(account.cluster));
    }
    text += "\n";
    for run in &account.runs {
        text += &describe_run(run);
    }
    for output in &account.outputs {
        let more = if output.elements > output.first.len() { ", …" } else { "" };
        text +=
            &format!("argument {}: {} elements: {}{more}\n", output.argument, output.elements, output.first.join(", "));
    }
    if let Some(first) = account.runs.first() {
        text += &counts(&first.report.metrics);
        text += &lines(&first.report.metrics, ptx);
    }
    text
}

fn describe_run(run: &Run) -> String {
    let mut text = format!("mode {}, seed {}: ", run.mode, run.seed);
    text += &match (run.report.findings.len() + run.differing_arguments.len(), run.is_good()) {
        (_, true) => "nothing found\n".to_owned(),
        (1, _) => "1 finding\n".to_owned(),
        (count, _) => format!("{count} findings\n"),
    };
    for finding in &run.report.findings {
        text += &format!("  {finding}\n");
    }
    for argument in &run.differing_arguments {
        text += &format!(
            "  schedule: argument {argument} has other bits than after the first run: the result depends on the schedule\n"
        );
    }
    for line in run.report.printf.lines() {
        text += &format!("  printf: {line}\n");
    }
    text
}

fn counts(metrics: &Metrics) -> String {
    let total = metrics.warp_instructions_total;
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let mut text = format!(
        "{total} warp instructions, {:.1} % of their lanes active, {} divergent branches, {} arrivals at barriers\n",
        100.0 * metrics.active_lane_ratio(),
        metrics.divergent_branches,
        metrics.barriers,
    );
    for (class, count) in &metrics.warp_instructions {
        text += &format!("  {:<15} {count:>12} {:>5.1} %\n", class.name(), share(*count, total));
    }
    let kinds: [(&str, &Traffic, &str); 4] = [
        ("global reads", &metrics.global_reads, "sectors"),
        ("global writes", &metrics.global_writes, "sectors"),
        ("shared reads", &metrics.shared_reads, "wavefronts"),
        ("shared writes", &metrics.shared_writes, "wavefronts"),
    ];
    for (name, traffic, unit) in kinds.into_iter().filter(|(_, traffic, _)| traffic.requests > 0) {
        text += &format!(
            "{name:<14} {} requests, {} bytes, {} {unit}, {:.2} of the ideal\n",
            traffic.requests,
            traffic.bytes,
            traffic.units,
            traffic.units as f64 / traffic.ideal_units.max(1) as f64,
        );
    }
    text
}

/// The table by line, in the order of the source.
fn lines(metrics: &Metrics, ptx: &str) -> String {
    // Without line information every instruction is a line of its own: those that touch memory tell the most.
    let (mut rows, rest): (Vec<&LineCount>, Vec<&LineCount>) =
        metrics.lines.iter().partition(|line| line.source.is_some() || line.sectors + line.wavefronts > 0);
    let key = |line: &LineCount| (line.source.as_ref().map(|s| (s.file.clone(), s.line)), line.ptx_line);
    rows.sort_by_key(|line| key(line));
    let mut files: HashMap<String, Vec<String>> = HashMap::new();
    let ptx: Vec<&str> = ptx.lines().collect();
    let mut text = format!(
        "{:>12} {:>6} {:>10} {:>10} {:>10} {:>10}  line\n",
        "instructions", "lanes", "sectors", "excess", "wavefronts", "conflicts"
    );
    for row in rows {
        let (place, excerpt) = match &row.source {
            Some(source) => {
                let file = files.entry(source.file.clone()).or_insert_with(|| {
                    let text = std::fs::read_to_string(&source.file).unwrap_or_default();
                    text.lines().map(str::to_owned).collect()
                });
                let name = source.file.rsplit('/').next().unwrap_or_default();
                let at = (source.line as usize).checked_sub(1);
                (format!("{name}:{}", source.line), at.and_then(|at| file.get(at)).map(String::as_str))
            }
            None => (
                format!("PTX {}", row.ptx_line),
                (row.ptx_line as usize).checked_sub(1).and_then(|at| ptx.get(at)).copied(),
            ),
        };
        let excerpt: String = excerpt.unwrap_or_default().trim().chars().take(EXCERPT).collect();
        let line = format!(
            "{:>12} {:>6.1} {:>10} {:>10} {:>10} {:>10}  {place:<20} {excerpt}",
            row.warp_instructions,
            row.lane_instructions as f64 / row.warp_instructions.max(1) as f64,
            row.sectors,
            row.excess_sectors,
            row.wavefronts,
            row.bank_conflicts,
        );
        text += &format!("{}\n", line.trim_end());
    }
    if !rest.is_empty() {
        let sum: u64 = rest.iter().map(|line| line.warp_instructions).sum();
        text += &format!("{sum:>12} {:>50}  on {} other PTX lines\n", "", rest.len());
    }
    text
}
