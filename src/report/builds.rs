//! Two builds against each other, as a Markdown table: what changed first, then how many did not.

use super::text::markdown;
use crate::check::builds::{BuildCase, BuildComparison, Tally};
use crate::check::outcome::Verdict;
use crate::core::stats::{median, sorted};
use std::fmt::Write as _;

/// The order in which verdicts are shown; `same` is only counted.
const SHOWN: [Verdict; 6] =
    [Verdict::Slower, Verdict::Fail, Verdict::Invalid, Verdict::Faster, Verdict::Unclear, Verdict::Skip];

/// The table; with `all`, cases that stayed the same too.
pub fn table(comparisons: &[BuildComparison], all: bool) -> String {
    let mut text = format!("{}\n\n", headline(comparisons));
    let order = SHOWN.into_iter().chain(all.then_some(Verdict::Same));
    let rows: Vec<&BuildComparison> =
        order.flat_map(|verdict| comparisons.iter().filter(move |c| c.verdict == verdict)).collect();
    if rows.is_empty() {
        return text;
    }
    text.push_str("| verdict | case | shape | base µs | head µs | head / base | 95 % interval | threshold | |\n");
    text.push_str("|---|---|---|---:|---:|---:|---:|---:|---|\n");
    for row in rows {
        let us = |us: Option<f64>| us.map_or_else(|| "-".into(), |us| format!("{us:.3}"));
        let interval = row.interval.map_or_else(|| "-".into(), |[low, high]| format!("{low:.4} to {high:.4}"));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {interval} | {} | {} |",
            row.verdict.name(),
            markdown(&row.case.name()),
            markdown(&row.case.shape),
            us(row.base_us),
            us(row.head_us),
            row.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.4}")),
            row.threshold.map_or_else(|| "-".into(), |share| format!("{:.1} %", share * 100.0)),
            markdown(&row.reason),
        );
    }
    text
}

/// A row a case, where cases were compared many times: how often each verdict was given, and how far the ratios reach.
pub fn by_case(comparisons: &[BuildComparison]) -> String {
    let mut cases: Vec<(&BuildCase, Vec<&BuildComparison>)> = Vec::new();
    for comparison in comparisons {
        match cases.iter_mut().find(|(case, _)| **case == comparison.case) {
            Some((_, of_case)) => of_case.push(comparison),
            None => cases.push((&comparison.case, vec![comparison])),
        }
    }
    let mut text = format!("{}\n\n", headline(comparisons));
    text.push_str("| case | shape | base µs | compared | slower | faster | unclear | head / base |\n");
    text.push_str("|---|---|---:|---:|---:|---:|---:|---:|\n");
    for (case, of_case) in cases {
        let Tally { compared, slower, faster, unclear } = Tally::of(of_case.iter().copied());
        let ratios = sorted(&of_case.iter().filter_map(|comparison| comparison.ratio).collect::<Vec<_>>());
        let reach = match (ratios.first(), ratios.last()) {
            (Some(low), Some(high)) => format!("{low:.4} to {high:.4}"),
            _ => "-".into(),
        };
        let base_us = median(&of_case.iter().filter_map(|comparison| comparison.base_us).collect::<Vec<_>>());
        let (name, shape) = (markdown(&case.name()), markdown(&case.shape));
        let _ = writeln!(
            text,
            "| {name} | {shape} | {base_us:.2} | {compared} | {slower} | {faster} | {unclear} | {reach} |"
        );
    }
    text
}

/// How many comparisons there were, and what came of them.
fn headline(comparisons: &[BuildComparison]) -> String {
    let Tally { compared, slower, faster, unclear } = Tally::of(comparisons);
    let count = |verdict| comparisons.iter().filter(|c| c.verdict == verdict).count();
    let mut text = format!(
        "**{compared} compared: {slower} slower, {faster} faster, {unclear} unclear, {} the same",
        count(Verdict::Same)
    );
    for (verdict, what) in [(Verdict::Fail, "failed"), (Verdict::Skip, "not compared")] {
        if count(verdict) > 0 {
            let _ = write!(text, "; {} {what}", count(verdict));
        }
    }
    text + "**"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;

    #[test]
    fn what_changed_comes_first() {
        let case =
            BuildCase { operator: "gelu".into(), candidate: "fast".into(), dtype: DType::F32, shape: "n=4".into() };
        let none = |verdict, reason: &str| BuildComparison::none(case.clone(), "gpu".into(), verdict, reason.into());
        let slower = BuildComparison {
            base_us: Some(4.0),
            head_us: Some(4.1),
            ratio: Some(1.025),
            interval: Some([1.02, 1.03]),
            threshold: Some(0.01),
            sessions: 2,
            ..none(Verdict::Slower, "")
        };
        let all = [none(Verdict::Skip, "only\nin | base"), none(Verdict::Same, ""), slower];
        assert_eq!(
            table(&all, false),
            "**2 compared: 1 slower, 0 faster, 0 unclear, 1 the same; 1 not compared**

| verdict | case | shape | base µs | head µs | head / base | 95 % interval | threshold | |
|---|---|---|---:|---:|---:|---:|---:|---|
| slower | gelu::fast::f32 | n=4 | 4.000 | 4.100 | 1.0250 | 1.0200 to 1.0300 | 1.0 % |  |
| skip | gelu::fast::f32 | n=4 | - | - | - | - | - | only in \\| base |
"
        );
        assert_eq!(table(&all, true).lines().count(), 7);
        let row = by_case(&all).lines().last().unwrap().to_owned();
        assert_eq!(row, "| gelu::fast::f32 | n=4 | 4.00 | 2 | 1 | 0 | 0 | 1.0250 to 1.0250 |");
    }
}
