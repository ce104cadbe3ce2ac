//! The dashboard: one file that holds its data, its style and its scripts, and asks nobody for anything.

mod data;
pub mod serve;

use super::history::History;
use super::summary::Summary;
use crate::calibrate::Calibration;

/// A summary and what it is called on the page.
pub struct Named {
    /// Its file.
    pub label: String,
    /// All that it holds.
    pub summary: Summary,
}

const TEMPLATE: &str = include_str!("dashboard.html");

const STYLES: [&str; 2] = [include_str!("vendor/uPlot.min.css"), include_str!("dashboard.css")];

/// The licence of the vendored charts, which is to go with every copy.
const LICENSE: &str = include_str!("vendor/LICENSE");

/// In this order: each uses what stands before it, and the last one starts.
const SCRIPTS: [&str; 19] = [
    include_str!("vendor/uPlot.iife.min.js"),
    include_str!("data.js"),
    include_str!("dom.js"),
    include_str!("charts.js"),
    include_str!("views/overview.js"),
    include_str!("views/trials.js"),
    include_str!("views/operators.js"),
    include_str!("views/roofline.js"),
    include_str!("views/speedup.js"),
    include_str!("views/latency.js"),
    include_str!("views/calibration.js"),
    include_str!("views/machine.js"),
    include_str!("views/prediction.js"),
    include_str!("views/models.js"),
    include_str!("views/profile.js"),
    include_str!("views/compare_runs.js"),
    include_str!("views/compare.js"),
    include_str!("views/history.js"),
    include_str!("main.js"),
];

/// The page of these summaries, the last of which is shown first. With `follow`, the version that it is of, it asks the
/// server that sent it for later ones; without it the page cannot reach any network.
pub fn page(
    summaries: &[Named],
    calibrations: &[Calibration],
    history: Option<&History>,
    follow: Option<&str>,
) -> String {
    let connect = if follow.is_some() { "'self'" } else { "'none'" };
    let data = data::json(summaries, calibrations, history, follow);
    let parts = [
        ("connect", connect.to_owned()),
        ("license", LICENSE.to_owned()),
        ("style", STYLES.join("\n")),
        ("data", data),
        ("script", SCRIPTS.join("\n")),
    ];
    let mut page = String::with_capacity(TEMPLATE.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut rest = TEMPLATE;
    // In the order of the template, so that what is filled in is never searched.
    for (name, text) in parts {
        let (before, after) =
            rest.split_once(&format!("{{{{{name}}}}}")).expect("the template has every part, in order");
        page.push_str(before);
        page.push_str(&text);
        rest = after;
    }
    page + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::samples::{failed, passed, slower};
    use crate::report::summary::samples::run;

    fn named(reason: &str) -> Named {
        let mut summary = Summary::new(run("r"));
        let mut hostile = failed();
        hostile.outcome.reason = reason.into();
        summary.add(vec![hostile, passed(), slower()]);
        Named { label: "a.json".into(), summary }
    }

    #[test]
    fn a_reason_cannot_leave_the_data() {
        let page = page(&[named("</script><script>alert(1)</script><!-- {{script}}")], &[], None, None);
        assert_eq!(page.matches("<script").count(), 2, "the data and the program");
        assert_eq!(page.matches("</script").count(), 2);
        assert!(page.contains("{{script}}") && page.contains("connect-src 'none'"));
    }

    #[test]
    fn the_charts_keep_their_licence() {
        let page = page(&[named("")], &[], None, None);
        assert!(page.contains("The MIT License (MIT)") && page.contains("Leon Sorokin"));
    }
}
