//! Annotations for GitHub's review of a change: workflow commands on the standard output of a step, each at the file of
//! the kernel.

use super::worst_first;
use crate::check::outcome::Verdict;
use crate::report::record::Record;
use crate::report::summary::Summary;
use crate::report::text::{line, plain};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// How many of a kind GitHub shows of one step.
const SHOWN: usize = 10;

/// Folders that hold no kernels of the repository.
const PASSED_OVER: [&str; 2] = ["target", "node_modules"];

/// How deep below the root a kernel may lie.
const DEPTH: usize = 12;

/// The commands: an error a failed verdict, a warning an unclear one, the worst first. Files are looked for below
/// `root`, the folder of the repository.
pub fn commands(summary: &Summary, root: &Path) -> String {
    let files = files(root);
    let mut text = String::new();
    let records = worst_first(summary);
    for (kind, chosen) in [("error", true), ("warning", false)] {
        let is_kind = |record: &&&Record| {
            let verdict = record.outcome.verdict;
            if chosen { verdict.is_failure() } else { verdict == Verdict::Unclear }
        };
        let of_kind: Vec<&&Record> = records.iter().filter(is_kind).collect();
        for record in of_kind.iter().take(SHOWN) {
            command(&mut text, kind, record, &files);
        }
        if of_kind.len() > SHOWN {
            let _ = writeln!(text, "::notice title=kernelgate::{} more of the kind {kind}", of_kind.len() - SHOWN);
        }
    }
    text
}

fn command(text: &mut String, kind: &str, record: &Record, files: &[PathBuf]) {
    let outcome = &record.outcome;
    let _ = write!(text, "::{kind} ");
    if let Some(source) = &record.source
        && let Some(file) = find(source, files)
    {
        let _ = write!(text, "file={},", property(&file.to_string_lossy()));
        let _ = write!(text, "line={},", line_of(source, record).unwrap_or(1));
    }
    let title = format!("{}: {}", outcome.verdict.name(), record.trial);
    let found = outcome.failure.as_ref().map_or(outcome.reason.as_str(), |failure| failure.text.trim_end());
    let shape = outcome.failure.as_ref().map_or(String::new(), |failure| format!("\nshape {}", failure.case.shape));
    let message = format!("{found}{shape}\nrepeat: {}", record.repeat);
    let _ = writeln!(text, "title={}::{}", property(&line(&title)), data(&plain(&message)));
}

/// The line that a failure names, as compilers and the simulator write it: `file:12` or `file(12)`.
fn line_of(source: &str, record: &Record) -> Option<usize> {
    let text = &record.outcome.failure.as_ref()?.text;
    text.match_indices(source).find_map(|(at, _)| {
        let rest = text[at + source.len()..].strip_prefix([':', '('])?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

/// The only file of the repository whose path ends so.
fn find<'a>(source: &str, files: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let mut found = files.iter().filter(|file| file.ends_with(source));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// All sources of kernels, relative to the root.
fn files(root: &Path) -> Vec<PathBuf> {
    fn enter(folder: &Path, root: &Path, depth: usize, files: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let is_passed_over = name.starts_with('.') || PASSED_OVER.contains(&name.as_str());
            // A link could lead back up.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth > 0 && !is_passed_over => enter(&path, root, depth - 1, files),
                Ok(kind) if kind.is_file() => {
                    let extension = path.extension().and_then(|extension| extension.to_str());
                    if matches!(extension, Some("cu" | "cuh" | "ptx")) {
                        files.extend(path.strip_prefix(root).ok().map(Path::to_owned));
                    }
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    enter(root, root, DEPTH, &mut found);
    found
}

/// What stands behind the second `::`.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// What stands between the command and the second `::`.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::samples::failed;
    use crate::report::summary::samples::run;

    fn of(records: Vec<Record>, root: &Path) -> String {
        let mut summary = Summary::new(run("r"));
        summary.add(records);
        commands(&summary, root)
    }

    #[test]
    fn a_failure_stands_at_the_line_of_its_kernel() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("gpu/kernels")).unwrap();
        fs::create_dir_all(root.path().join("target/kernels")).unwrap();
        fs::write(root.path().join("gpu/kernels/rows.cu"), "").unwrap();
        fs::write(root.path().join("target/kernels/rows.cu"), "").unwrap();
        let mut record = failed();
        record.source = Some("kernels/rows.cu".into());
        record.outcome.failure.as_mut().unwrap().text = "race: kernels/rows.cu:31 in k".into();
        let expected = "::error file=gpu/kernels/rows.cu,line=31,title=fail%3A rows%3A%3Anaive%3A%3Af16%3A%3Acorrectness\
            ::race: kernels/rows.cu:31 in k%0Ashape rows=3,cols=5%0Arepeat: cargo test";
        let text = of(vec![record.clone()], root.path());
        assert!(text.starts_with(expected), "{text}");
        record.outcome.failure.as_mut().unwrap().text = "kernels/rows.cu(7): error: expected a `;`".into();
        assert!(of(vec![record.clone()], root.path()).contains(",line=7,"));
        record.source = Some("elsewhere.cu".into());
        assert!(of(vec![record.clone()], root.path()).starts_with("::error title="), "no such file");
        fs::write(root.path().join("rows.cu"), "").unwrap();
        record.source = Some("rows.cu".into());
        assert!(of(vec![record], root.path()).starts_with("::error title="), "two files of that name");
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let many = (0..13).map(|i| Record { trial: format!("rows::n{i}::f16::correctness"), ..failed() });
        let text = of(many.collect(), Path::new("/nonexistent"));
        assert_eq!(text.lines().filter(|line| line.starts_with("::error ")).count(), 10);
        assert_eq!(text.lines().last(), Some("::notice title=kernelgate::3 more of the kind error"));
    }
}
