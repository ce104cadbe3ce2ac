//! Snapshot files: accepted ones are read with insta, pending ones are written in its format beside them.
//!
//! `insta::assert_snapshot!` is not used, for what it does with a difference is up to the environment: `INSTA_UPDATE`
//! may overwrite the accepted file, `INSTA_FORCE_PASS` (which `cargo insta test` sets) lets it pass, `CI` keeps it from
//! writing anything, and it prints to the standard output of the harness. A pending file is all that
//! `cargo insta review` needs.

use std::io;
use std::path::{Path, PathBuf};

/// What a reviewer sees above the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// One line about what was timed.
    pub description: String,
    /// Facts that the times depend on, by name.
    pub info: Vec<(&'static str, String)>,
}

/// What a snapshot holds: a text that people review.
pub trait Document: Sized {
    /// The text of the file.
    fn text(&self) -> String;

    /// The reverse.
    ///
    /// # Errors
    /// The line that is not as expected, counted from 1, and why.
    fn parse(text: &str) -> Result<Self, (usize, String)>;
}

/// The pending file of a snapshot: `name.snap.new`.
pub fn pending_path(snapshot: &Path) -> PathBuf {
    snapshot.with_extension("snap.new")
}

/// Reads an accepted baseline; `None` if there is no such file.
///
/// # Errors
/// If the file is there and is no baseline; the text says what to do.
pub fn read<D: Document>(snapshot: &Path) -> Result<Option<D>, String> {
    let place = snapshot.display();
    let unusable = |what: String| {
        format!(
            "{place}: not a usable baseline: {what}; restore it from version control, or delete it, run again and \
             accept the new one with `cargo insta review`"
        )
    };
    let text = match std::fs::read_to_string(snapshot) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(error.to_string())),
    };
    // insta takes a file without front matter for one of its legacy files, and complains at length.
    let mut fences = text.lines().enumerate().filter(|(_, line)| line.trim_end() == "---").map(|(at, _)| at);
    let (Some(0), Some(end)) = (fences.next(), fences.next()) else {
        return Err(unusable("it has no front matter between two lines `---`".into()));
    };
    let accepted = insta::Snapshot::from_file(snapshot).map_err(|error| unusable(error.to_string()))?;
    let text = accepted.as_text().map(ToString::to_string).unwrap_or_default();
    let in_file = |(line, what): (usize, String)| unusable(format!("line {}: {what}", end + 1 + line));
    D::parse(&text).map(Some).map_err(in_file)
}

/// Writes the pending snapshot, whole or not at all, and returns its path.
///
/// # Errors
/// If it cannot be written.
pub fn write_pending(snapshot: &Path, metadata: &Metadata, document: &impl Document) -> io::Result<PathBuf> {
    let pending = pending_path(snapshot);
    let folder = pending.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // Another process of the same run may write the same file.
    let draft = pending.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&draft, format!("{}{}\n", front_matter(metadata), document.text()))?;
    std::fs::rename(&draft, &pending)?;
    Ok(pending)
}

/// Removes a pending snapshot that no longer says anything new.
pub fn remove_pending(snapshot: &Path) {
    // There is usually none, and one that cannot be removed is no worse than one that a person left lying.
    let _ = std::fs::remove_file(pending_path(snapshot));
}

fn front_matter(metadata: &Metadata) -> String {
    // A JSON string is a YAML string.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!("---\ndescription: {}\n", quoted(&metadata.description));
    if !metadata.info.is_empty() {
        text += "info:\n";
    }
    for (name, value) in &metadata.info {
        text += &format!("  {name}: {}\n", quoted(value));
    }
    text + "---\n"
}

#[cfg(test)]
mod tests {
    use super::super::row::Table;
    use super::*;
    use rstest::rstest;

    const TABLE: &str = "kernelgate perf 1\nshape | heat | median us | +- % | ceiling % | yardstick us | epoch us | code\n\
                         n=1 | cold | 2 | 0.1 | - | - | 2/- | -";

    fn written(folder: &Path) -> PathBuf {
        let snapshot = folder.join("deep/er/gelu.v3.f32.snap");
        let metadata = Metadata {
            description: "gelu \"v3\": f32 on GPU".into(),
            info: vec![("driver", "580.1".into()), ("odd", "a: b # c\n'".into())],
        };
        let pending = write_pending(&snapshot, &metadata, &Table::parse(TABLE).unwrap()).unwrap();
        assert_eq!(pending, folder.join("deep/er/gelu.v3.f32.snap.new"));
        std::fs::rename(pending, &snapshot).unwrap();
        snapshot
    }

    #[test]
    fn insta_reads_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = insta::Snapshot::from_file(&written(folder.path())).unwrap();
        assert_eq!(snapshot.metadata().description(), Some("gelu \"v3\": f32 on GPU"));
        let text = snapshot.as_text().map(ToString::to_string).unwrap_or_default();
        assert_eq!(text, Table::parse(TABLE).unwrap().text());
        let info = format!("{:?}", snapshot.metadata());
        assert!(info.contains("580.1") && info.contains("a: b # c\\n'"), "{info}");
    }

    #[test]
    fn a_baseline_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = written(folder.path());
        assert_eq!(read(&snapshot), Ok(Some(Table::parse(TABLE).unwrap())));
        assert_eq!(read::<Table>(&folder.path().join("other.snap")), Ok(None));
        assert_eq!(std::fs::read_dir(snapshot.parent().unwrap()).unwrap().count(), 1, "no draft is left");
    }

    #[rstest]
    #[case::empty("", "front matter")]
    #[case::garbage("\u{0}\u{1}garbage", "front matter")]
    #[case::cut_in_the_front_matter("---\ndescription: \"a", "front matter")]
    #[case::bad_yaml("---\n  a: [\n---\nkernelgate perf 1\n", "YAML")]
    #[case::no_table("---\ndescription: a\n---\n", "line 4")]
    #[case::cut_row(
        "---\na: b\n---\nkernelgate perf 1\nshape | heat | median us | +- % | ceiling % | yardstick us | epoch us | code\nn=1 | co",
        "line 6: expected 8"
    )]
    fn a_file_that_is_no_baseline_says_what_to_do(#[case] text: &str, #[case] part: &str) {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("a.snap");
        std::fs::write(&snapshot, text).unwrap();
        let error = read::<Table>(&snapshot).unwrap_err();
        assert!(error.contains(part) && error.contains("cargo insta review"), "{error}");
    }
}
