//! Plots, read back by an XML library: what is drawn, and that names stay text.

use crate::support::{data, kernelgate, stdout};
use roxmltree::{Document, Node};
use std::path::Path;

fn plot(arguments: &[&str], summary: &Path) -> String {
    let (kind, rest) = arguments.split_first().unwrap();
    stdout(&kernelgate("plot").arg(kind).arg(summary).args(rest).output().unwrap())
}

/// What stands in the picture.
fn texts<'a>(document: &'a Document) -> Vec<&'a str> {
    let all = document.descendants().filter(|node| node.tag_name().name() == "text");
    all.filter_map(|node| node.text().map(str::trim)).collect()
}

fn count(document: &Document, element: &str) -> usize {
    document.descendants().filter(|node| node.tag_name().name() == element).count()
}

#[test]
fn a_bar_a_time_and_names_stay_text() {
    let svg = plot(&["times"], &data("every-kind.json"));
    let document = Document::parse(&svg).unwrap();
    let texts = texts(&document);
    assert!(texts.iter().any(|text| text.contains("<b>x</b>]]>\\u{0}|a b::c%d\\u{1b}[31m")), "{texts:?}");
    assert_eq!(count(&document, "b") + count(&document, "script"), 0);
    assert!(texts.contains(&"eager") && texts.contains(&"20.0"), "a peer and its time: {texts:?}");
    // The ground, two keys of the legend, and a bar for each time that can be believed: five candidates, two peers.
    assert_eq!(count(&document, "rect"), 10, "{svg}");
}

#[test]
fn every_kind_of_plot_is_drawn_from_a_committed_result() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results");
    let [gate, peers] = ["h200-gate.json.xz", "h200-peers.json.xz"].map(|name| results.join(name));
    for (arguments, summary, circles) in [
        (&["roofline", "--operator", "softmax"][..], &gate, 4),
        (&["times", "--operator", "softmax", "--dtype", "bf16"], &peers, 0),
        (&["speedups", "--dtype", "bf16"], &peers, 0),
        (&["errors", "--operator", "softmax"], &gate, 0),
        (&["scaling", "--operator", "gemv", "--candidate", "cuda", "--axis", "n"], &peers, 8),
    ] {
        let svg = plot(arguments, summary);
        let document = Document::parse(&svg).unwrap_or_else(|e| panic!("{arguments:?}: {e}"));
        assert!(count(&document, "circle") >= circles, "{arguments:?}");
        assert!(document.descendants().any(|node| node.tag_name().name() == "style"), "no style for dark ground");
        let inside = |node: &Node, name: &str, most: f64| {
            node.attribute(name).and_then(|text| text.parse().ok()).is_none_or(|at: f64| (0.0..=most).contains(&at))
        };
        let root = document.root_element();
        let size = |name: &str| root.attribute(name).unwrap().parse::<f64>().unwrap();
        let outside =
            root.descendants().filter(|node| !inside(node, "x", size("width")) || !inside(node, "y", size("height")));
        assert_eq!(outside.count(), 0, "{arguments:?}: drawn beyond its border");
    }
}

#[test]
fn what_cannot_be_drawn_says_why() {
    for (arguments, why) in [
        (&["times", "--operator", "nothing"][..], "the operators here are: "),
        (&["scaling"], "--axis"),
        (&["roofline", "--operator", "gemm"], "nothing to plot"),
    ] {
        let (kind, rest) = arguments.split_first().unwrap();
        let output = kernelgate("plot").arg(kind).arg(data("every-kind.json")).args(rest).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{arguments:?}: {said}");
    }
}
