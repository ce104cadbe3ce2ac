//! The Markdown page, the CSV, and several forms at once.

use crate::support::{every_kind, report, stdout};
use pulldown_cmark::{Event, Options, Parser, Tag};

#[test]
fn the_page_of_a_job_keeps_its_tables() {
    let text = stdout(&report(&["--markdown", "-"]));
    let summary = every_kind();
    assert!(text.starts_with(&format!("## demo: 6 of {} trials failed\n", summary.records.len())), "{text}");
    let mut columns = None;
    for line in text.lines() {
        // A bar is a column unless it is escaped.
        let bars = line.replace("\\\\", "").replace("\\|", "").matches('|').count();
        match columns {
            Some(n) if bars > 0 => assert_eq!(bars, n, "{line}"),
            _ => columns = (bars > 0).then_some(bars),
        }
    }
    assert!(!text.contains("<b>") && !text.contains("<script") && !text.contains('\u{1b}') && !text.contains('\0'));
}

/// The tables of a page as a parser of GitHub's dialect sees them: cells in rows.
fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables: Vec<Vec<Vec<String>>> = Vec::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        let rows = tables.last_mut();
        match (event, rows) {
            (Event::Start(Tag::Table(_)), _) => tables.push(Vec::new()),
            (Event::Start(Tag::TableHead | Tag::TableRow), Some(rows)) => rows.push(Vec::new()),
            (Event::Start(Tag::TableCell), Some(rows)) => rows.last_mut().unwrap().push(String::new()),
            (Event::Text(text) | Event::Code(text), Some(rows)) => {
                if let Some(cell) = rows.last_mut().and_then(|row| row.last_mut()) {
                    cell.push_str(&text);
                }
            }
            (Event::Html(html) | Event::InlineHtml(html), _) => panic!("markup: {html}"),
            _ => {}
        }
    }
    tables
}

#[test]
fn another_parser_finds_every_failure_in_the_page_of_a_job() {
    let text = stdout(&report(&["--markdown", "-"]));
    let summary = every_kind();
    let tables = tables(&text);
    let failed = &tables[0];
    assert_eq!(failed[0], ["verdict", "trial", "device", "what"]);
    let failures = summary.records.iter().filter(|record| record.outcome.verdict.is_failure()).count();
    assert_eq!(failed.len() - 1, failures);
    for table in &tables {
        assert!(table.iter().all(|row| row.len() == table[0].len()), "{table:?}");
    }
    assert!(
        failed.iter().any(|row| row[1].contains("<script>alert(1)</script>")),
        "a hostile name stays text: {failed:?}"
    );
}

#[test]
fn a_spreadsheet_reads_the_table() {
    let text = stdout(&report(&["--csv"]));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert!(rows.len() > every_kind().records.len());
    assert!(rows.iter().flatten().all(|cell| !cell.starts_with(['=', '@'])), "a cell is a formula");
}

#[test]
fn a_spreadsheet_reads_all_of_a_profile() {
    let text = stdout(&report(&["--profiles"]));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let decode = |row: &&csv::StringRecord| row[column("run")] == *"decode";
    let of = |table: &str, columns: &[&str]| -> Vec<String> {
        let of_table = rows.iter().filter(decode).filter(|row| row[column("table")] == *table);
        of_table.map(|row| columns.iter().map(|name| &row[column(name)]).collect::<Vec<_>>().join(" ")).collect()
    };
    let of_run = ["overhead", "overhead_low", "overhead_high", "traced_mean_us", "accounted_us", "perplexity"];
    assert_eq!(of("run", &of_run), ["0.05 0.01 0.09 9.75 9.5 9.5"]);
    assert_eq!(of("kernel", &["name", "within", "kernels"]), ["add add 2.0"]);
    assert_eq!(of("operator", &["name", "idle_us"]), ["add 0.5"]);
    assert_eq!(of("memory", &["at_us", "bytes"]), ["0.5 90.0", "2.5 100.0"]);
    assert_eq!(of("alive", &["name", "at_us", "bytes"]), ["weights 2.5 90.0"]);
    assert_eq!(of("hint", &["realised_gain_us", "not_applied"]), ["2.0 why"]);
    let of_other = ["name", "total_us", "kernels", "bytes", "largest_difference", "relative_difference", "perplexity"];
    assert_eq!(of("against", &of_other), ["naive 90.5 4.0 120.0 0.5 0.25 9.25"]);
    let of_counter = ["name", "compute_share", "memory_share", "occupancy", "tensor_share", "bytes", "bound", "ours"];
    assert_eq!(of("counter", &of_counter), ["add_f32 0.25 0.75 0.5 0.125 96.0 memory memory"]);
}

#[test]
fn several_forms_are_written_at_once_and_two_on_stdout_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let names = ["j.xml", "m.md", "b.json", "g.json", "t.csv"].map(path);
    let [junit, markdown, bmf, gh, table] = names.each_ref().map(String::as_str);
    let forms = ["--junit", junit, "--markdown", markdown, "--bmf", bmf, "--gh-benchmark", gh, "--csv", "--out", table];
    assert!(stdout(&report(&[&forms[..], &["--annotations"]].concat())).starts_with("::error "));
    for name in &names {
        assert!(std::fs::metadata(name).unwrap().len() > 100, "{name}");
    }
    let mixed = report(&["--csv", "--annotations"]);
    assert_eq!(mixed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&mixed.stderr).contains("mixed on stdout"));
}
