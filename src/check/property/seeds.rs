//! The file of failing cases that are replayed first: one readable line a case, meant to be committed.

use super::strategy::Space;
use crate::check::Subject;
use crate::check::case::{Case, CaseId};
use crate::core::distribution::UnknownDistribution;
use crate::core::dtype::UnknownDType;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const HEADER: &str = "\
# Cases that failed once; the property check replays them before it draws new ones. Commit this file.
# A line is what a failure prints: <shape> <dtype> <distribution> seed <hex> [offset <n> B] [# comment]
";

/// The kept cases of one subject.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Those that can be replayed.
    pub cases: Vec<Case>,
    /// What is wrong with the others; their lines stay in the file.
    pub notes: Vec<String>,
}

/// Where the cases of a subject are kept, below `folder`.
pub(super) fn path(folder: &Path, subject: &Subject<'_>) -> PathBuf {
    let name = format!("{}.{}.txt", subject.operator.name(), subject.candidate.name);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    folder.join(name.chars().map(plain).collect::<String>())
}

/// Reads the cases of a subject's dtype.
pub(super) fn load(path: &Path, subject: &Subject<'_>, space: &Space<'_>) -> Kept {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Kept::default(),
        Err(error) => {
            let note = format!("{}: kept cases not replayed: {error}", path.display());
            return Kept { cases: Vec::new(), notes: vec![note] };
        }
    };
    let mut kept = Kept::default();
    for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
        match read_line(line, subject, space) {
            Ok(case) => kept.cases.extend(case),
            Err(why) => kept.notes.push(format!("{}:{}: not replayed: {why}", path.display(), number + 1)),
        }
    }
    kept
}

/// Appends a case with a comment, unless it is there already.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn keep(path: &Path, id: &CaseId, comment: &str) -> std::io::Result<()> {
    let line = id.to_string();
    let old = std::fs::read(path).unwrap_or_default();
    let old = String::from_utf8_lossy(&old);
    if old.lines().any(|known| without_comment(known) == line) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let header = if old.is_empty() { HEADER } else { "" };
    // A hand-edited file may lack its last line break.
    let separator = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
    // One write: trials of other dtypes may append to the same file from processes of their own.
    let text = format!("{header}{separator}{line} # {comment}\n");
    OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// The case of a line; `None` for a comment, or a case of another dtype.
fn read_line(line: &str, subject: &Subject<'_>, space: &Space<'_>) -> Result<Option<Case>, String> {
    let text = without_comment(line);
    if text.is_empty() {
        return Ok(None);
    }
    let id = parse(text)?;
    if id.dtype != subject.dtype {
        return Ok(None);
    }
    let case = id.case(subject)?;
    if let Some(why) = subject.objection(&case.point) {
        return Err(format!("`{}` is no shape any more: {why}", id.shape));
    }
    if !space.fits(&case.point) {
        return Err(format!("`{}` is too large for this device", id.shape));
    }
    if !space.allows_offset(case.offset_bytes) {
        return Err(format!("the candidate's alignment no longer allows an offset of {} B", case.offset_bytes));
    }
    Ok(Some(case))
}

/// The reverse of writing a [`CaseId`].
fn parse(text: &str) -> Result<CaseId, String> {
    let form = || format!("`{text}`: expected `<shape> <dtype> <distribution> seed <hex> [offset <n> B]`");
    let words: Vec<&str> = text.split_whitespace().collect();
    let (shape, dtype, distribution, seed, offset) = match words[..] {
        [shape, dtype, distribution, "seed", seed] => (shape, dtype, distribution, seed, "0"),
        [shape, dtype, distribution, "seed", seed, "offset", offset, "B"] => (shape, dtype, distribution, seed, offset),
        _ => return Err(form()),
    };
    let digits = seed.strip_prefix("0x").ok_or_else(form)?;
    Ok(CaseId {
        shape: shape.into(),
        dtype: dtype.parse().map_err(|e: UnknownDType| e.to_string())?,
        distribution: distribution.parse().map_err(|e: UnknownDistribution| e.to_string())?,
        seed: u64::from_str_radix(digits, 16).map_err(|_| form())?,
        offset_bytes: offset.parse().map_err(|_| form())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::distribution::Distribution;
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::device::Capacity;
    use rstest::rstest;

    crate::shape! { struct Rows { rows: 0..=512, cols: 1..=512 } }

    fn with_subject<R>(test: impl FnOnce(&Subject<'_>, &Space<'_>) -> R) -> R {
        let op = Op::<Rows>::new("rows/sum").input("x", |s| [s.rows, s.cols]).output("y", |s| [s.rows]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Rows, _, _| {}).named("my own");
        let subject = Subject { operator: &op, candidate: &candidate, dtype: DType::F32 };
        let capacity = Capacity {
            elements: 4096,
            flops: 1 << 20,
            threads: usize::MAX,
            timed: false,
            timed_bytes: 0,
            asked_bytes: 0,
        };
        let space = Space::new(&subject, capacity).unwrap();
        test(&subject, &space)
    }

    fn case(rows: usize, cols: usize, offset_bytes: usize) -> Case {
        Case { offset_bytes, ..Case::new(vec![rows, cols], Distribution::NonFinite, 0xfeed) }
    }

    #[test]
    fn cases_round_trip_in_order_and_once() {
        let folder = tempfile::tempdir().unwrap();
        with_subject(|subject, space| {
            let path = path(&folder.path().join("new"), subject);
            assert_eq!(path.file_name().unwrap(), "rows_sum.my_own.txt");
            let cases = [case(3, 5, 0), case(0, 1, 16), case(1, 512, 240)];
            for case in cases.iter().chain(&cases) {
                keep(&path, &case.id(subject), "values").unwrap();
            }
            let kept = load(&path, subject, space);
            assert_eq!((kept.cases, kept.notes), (cases.to_vec(), vec![]));
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("# Cases that failed once"), "{text}");
            assert!(text.contains("\nrows=0,cols=1 f32 non_finite seed 0xfeed offset 16 B # values\n"), "{text}");
        });
    }

    #[rstest]
    #[case::nonsense("rows=3 cols=5", "expected `<shape> <dtype>")]
    #[case::axis("rows=3,depth=5 f32 normal seed 0x1", "no axis `depth`")]
    #[case::range("rows=3,cols=0 f32 normal seed 0x1", "1..=512")]
    #[case::dtype("rows=3,cols=5 f64 normal seed 0x1", "unknown dtype")]
    #[case::distribution("rows=3,cols=5 f32 gaussian seed 0x1", "unknown distribution")]
    #[case::seed("rows=3,cols=5 f32 normal seed 17", "expected `<shape>")]
    #[case::large_seed("rows=3,cols=5 f32 normal seed 0x11112222333344445", "expected `<shape>")]
    #[case::offset("rows=3,cols=5 f32 normal seed 0x1 offset 4 B", "alignment no longer allows")]
    #[case::large("rows=512,cols=512 f32 normal seed 0x1", "too large")]
    fn a_bad_line_is_reported_and_stays(#[case] line: &str, #[case] why: &str) {
        let folder = tempfile::tempdir().unwrap();
        with_subject(|subject, space| {
            let path = path(folder.path(), subject);
            let old = format!("# mine\n{line}\n\nrows=2,cols=2 f32 normal seed 0x1\nrows=2,cols=2 f16 normal seed 0x1");
            std::fs::write(&path, &old).unwrap();
            keep(&path, &case(3, 5, 0).id(subject), "values").unwrap();
            let kept = load(&path, subject, space);
            assert_eq!(kept.cases.iter().map(|c| c.point.clone()).collect::<Vec<_>>(), [[2, 2], [3, 5]]);
            assert_eq!(kept.notes.len(), 1, "{:?}", kept.notes);
            assert!(kept.notes[0].contains("my_own.txt:2: ") && kept.notes[0].contains(why), "{:?}", kept.notes);
            assert!(std::fs::read_to_string(&path).unwrap().starts_with(&old));
        });
    }

    #[test]
    fn bytes_that_are_no_text_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        with_subject(|subject, space| {
            let path = path(folder.path(), subject);
            std::fs::write(&path, b"\xff\xfe\x00\nrows=2,cols=2 f32 normal seed 0x1\n").unwrap();
            let kept = load(&path, subject, space);
            assert_eq!((kept.cases.len(), kept.notes.len()), (1, 1));
            assert_eq!(load(folder.path(), subject, space).notes.len(), 1, "a folder in its place");
        });
    }
}
