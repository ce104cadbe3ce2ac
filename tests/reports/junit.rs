//! JUnit XML, read by another XML library and held against the rules of the JUnit schema that consumers rely on.

use crate::support::{every_kind, report, stdout};
use kernelgate::check::outcome::Verdict;
use roxmltree::{Document, Node};

/// What the schema and its consumers ask of a file.
fn problems(document: &Document) -> Vec<String> {
    let mut found = Vec::new();
    let root = document.root_element();
    if root.tag_name().name() != "testsuites" || !root.has_attribute("name") {
        found.push("the root is no named `testsuites`".to_owned());
    }
    for suite in root.children().filter(Node::is_element) {
        if suite.tag_name().name() != "testsuite" || !suite.has_attribute("name") {
            found.push(format!("`{}` is no named `testsuite`", suite.tag_name().name()));
        }
        let counted = |name: &str| suite.descendants().filter(|node| node.tag_name().name() == name).count();
        let counts = [("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")];
        for (attribute, element) in counts {
            let said = suite.attribute(attribute).and_then(|text| text.parse().ok()).unwrap_or(0);
            if said != counted(element) {
                found.push(format!("{attribute} is {said}, but there are {}", counted(element)));
            }
        }
        if suite.attribute("timestamp").is_none() {
            found.push("a suite without a time".to_owned());
        }
        for case in suite.children().filter(|node| node.tag_name().name() == "testcase") {
            case_problems(&case, &mut found);
        }
    }
    found
}

fn case_problems(case: &Node, found: &mut Vec<String>) {
    for attribute in ["name", "classname"] {
        if case.attribute(attribute).is_none_or(str::is_empty) {
            found.push(format!("a test case without {attribute}"));
        }
    }
    if case.attribute("time").and_then(|time| time.parse::<f64>().ok()).is_none_or(|time| time < 0.0) {
        found.push("a test case without a time in seconds".to_owned());
    }
    let results: Vec<Node> =
        case.children().filter(|c| matches!(c.tag_name().name(), "failure" | "error" | "skipped")).collect();
    if results.len() > 1 {
        found.push("a test case with two results".to_owned());
    }
    for result in results {
        if result.attribute("type").is_none_or(str::is_empty) || result.attribute("message").is_none() {
            found.push(format!("`{}` without type or message", result.tag_name().name()));
        }
    }
}

#[test]
fn another_library_reads_it_and_finds_every_trial_with_its_result() {
    let text = stdout(&report(&["--junit", "-"]));
    let document = Document::parse(&text).unwrap();
    assert_eq!(problems(&document), [""; 0], "{text}");
    let summary = every_kind();
    let cases: Vec<Node> = document.descendants().filter(|node| node.tag_name().name() == "testcase").collect();
    assert_eq!(cases.len(), summary.records.len());
    let with =
        |element: &str| cases.iter().filter(|case| case.children().any(|c| c.tag_name().name() == element)).count();
    let count = |verdicts: &[Verdict]| verdicts.iter().map(|verdict| summary.counts[verdict]).sum::<usize>();
    let failed = count(&[Verdict::Fail, Verdict::Slower, Verdict::Invalid]);
    assert_eq!((with("failure"), with("error")), (failed - 1, 1), "what crashed is an error");
    assert_eq!(with("skipped"), count(&[Verdict::Skip, Verdict::Unclear]), "unclear is no pass");
}

#[test]
fn a_hostile_name_stays_text() {
    let text = stdout(&report(&["--junit", "-"]));
    let document = Document::parse(&text).unwrap();
    let names: Vec<&str> = document.descendants().map(|node| node.tag_name().name()).collect();
    assert!(!names.contains(&"b") && !names.contains(&"script"), "{names:?}");
    let is_hostile = |node: &Node| {
        node.attribute("message").is_some_and(|message| message.starts_with("values: <b>x</b>]]>\\u{0}|a b"))
    };
    let failure = document.descendants().find(is_hostile).unwrap();
    assert!(failure.text().unwrap().contains("]]>\\u{0}") && failure.text().unwrap().contains("</script>"));
    let allowed =
        |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    assert!(text.chars().all(allowed), "a character that XML does not allow");
}

#[test]
fn a_wrong_file_would_be_seen() {
    let good = stdout(&report(&["--junit", "-"]));
    for (from, to) in [("tests=\"", "tests=\"9"), (" classname=\"", " class=\""), ("<skipped ", "<skipped/><skipped ")]
    {
        let bad = good.replace(from, to);
        assert!(!problems(&Document::parse(&bad).unwrap()).is_empty(), "{from} as {to}");
    }
}
