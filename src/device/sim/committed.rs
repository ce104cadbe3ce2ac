//! The folder of a project's compiled kernels: with it, a machine needs no compiler to simulate them.

use super::arch::ARCH;
use crate::core::candidate::{Body, Language, Program};
use crate::core::dtype::DType;
use crate::core::packed::{pack, unpack};
use crate::core::suite::Suite;
use crate::device::ptx::Ptx;
use crate::device::recipe::{Target, key};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The folder below that of the project.
pub const FOLDER: &str = "kernels/ptx";

/// The end of a file's name. The text is packed: compiled kernels are large, alike, and read by nobody in a diff;
/// `xz -dc` shows one.
const ENDING: &str = ".ptx.xz";

/// A folder of compiled kernels, a file a program and dtype.
pub struct Committed {
    folder: PathBuf,
}

impl Committed {
    /// The folder, which need not exist.
    pub fn new(folder: PathBuf) -> Self {
        Committed { folder }
    }

    /// The PTX of a program, if it is there and was made from this very source.
    pub fn find(&self, program: &Program, dtype: DType) -> Option<Ptx> {
        let file = self.read(&file_name(program, dtype)).ok()?;
        Ptx::parse(&file).filter(|ptx| ptx.source == source_key(program, dtype))
    }

    /// The text of a file of this folder.
    ///
    /// # Errors
    /// A file that is not there, or is no packed text.
    pub fn read(&self, name: &str) -> std::io::Result<String> {
        unpack(&std::fs::read(self.folder.join(name))?)
    }

    /// What is wrong with the folder for these suites: kernels that are missing or were made from another source, files
    /// that belong to none.
    ///
    /// # Errors
    /// Two programs that would have one file.
    pub fn stale(&self, suites: &[Suite]) -> Result<Vec<String>, String> {
        let wanted = programs(suites)?;
        let missing = wanted.iter().filter(|(_, (program, dtype))| self.find(program, *dtype).is_none());
        let mut wrong: Vec<String> =
            missing.map(|(name, _)| format!("{name} is missing or was not made from its source")).collect();
        let there = self.files().into_iter().filter(|name| !wanted.contains_key(name));
        wrong.extend(there.map(|name| format!("{name} belongs to no kernel")));
        Ok(wrong)
    }

    /// The names of its files, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(ENDING)).collect();
        names.sort();
        names
    }

    /// Writes the PTX of every kernel that is missing or stale, as `compile` makes it, and removes files of these kernels in
    /// dtypes that they no longer have. What is not of these kernels may be another gate's: it stays. Returns how many were
    /// written and removed, and the names of those that are of none of these kernels.
    ///
    /// # Errors
    /// What does not compile or cannot be written.
    pub fn renew(
        &self,
        suites: &[Suite],
        mut compile: impl FnMut(&Program, DType) -> Result<Ptx, String>,
    ) -> Result<(usize, usize, Vec<String>), String> {
        let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, error))?;
        let wanted = programs(suites)?;
        let (mut written, mut removed) = (0, 0);
        for (name, (program, dtype)) in &wanted {
            if self.find(program, *dtype).is_none() {
                let path = self.folder.join(name);
                let packed = pack(&compile(program, *dtype)?.to_string());
                packed.and_then(|packed| std::fs::write(&path, packed)).map_err(|error| failed(&path, error))?;
                written += 1;
            }
        }
        let kernels: BTreeSet<&str> = wanted.keys().map(|name| kernel_of(name)).collect();
        let unwanted = self.files().into_iter().filter(|name| !wanted.contains_key(name));
        let (ours, others): (Vec<_>, Vec<_>) = unwanted.partition(|name| kernels.contains(kernel_of(name)));
        for name in ours {
            let path = self.folder.join(name);
            std::fs::remove_file(&path).map_err(|error| failed(&path, error))?;
            removed += 1;
        }
        Ok((written, removed, others))
    }
}

/// `gelu.bf16.ptx.xz` for `kernels/gelu.cu`.
fn file_name(program: &Program, dtype: DType) -> String {
    let stem = Path::new(&program.file).file_stem().unwrap_or_default().to_string_lossy();
    format!("{stem}.{dtype}{ENDING}")
}

/// `gelu` for `gelu.bf16.ptx.xz`.
fn kernel_of(file: &str) -> &str {
    file.trim_end_matches(ENDING).rsplit_once('.').map_or(file, |(kernel, _)| kernel)
}

fn source_key(program: &Program, dtype: DType) -> String {
    key(program, dtype, &Target::Ptx(ARCH.into()))
}

/// The CUDA programs of some suites in every dtype that they run in, by the file that holds their PTX.
fn programs(suites: &[Suite]) -> Result<BTreeMap<String, (Program, DType)>, String> {
    let mut all: BTreeMap<String, (Program, DType)> = BTreeMap::new();
    for suite in suites {
        for candidate in &suite.candidates {
            let Body::Cuda(kernel) = &candidate.body else { continue };
            let program = &kernel.program;
            for dtype in suite.dtypes_of(candidate) {
                if program.language != Language::Cuda {
                    continue;
                }
                let name = file_name(program, dtype);
                let (other, _) = all.entry(name.clone()).or_insert_with(|| (program.clone(), dtype));
                if source_key(other, dtype) != source_key(program, dtype) {
                    return Err(format!(
                        "two kernels would be kept as {name}: give their sources names of their own with `Cuda::file`, \
                         or the same headers and options"
                    ));
                }
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Cuda, Declare};
    use crate::core::launch::Launch;
    use crate::core::operator::Op;

    crate::shape! { struct Vector { n: 1..=8 } }

    fn suites(text: &str) -> Vec<Suite> {
        let op = Op::<Vector>::new("k").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let cuda = Cuda::source(text, "k", |_: &Vector| Launch::blocks(1, 1)).file("kernels/k.cu").dtypes([DType::F32]);
        vec![Suite::of(op).candidate("c", cuda).into()]
    }

    fn compile(program: &Program, dtype: DType) -> Result<Ptx, String> {
        Ok(Ptx { source: source_key(program, dtype), text: program.text.clone(), ..Ptx::default() })
    }

    #[test]
    fn a_folder_is_renewed_where_it_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let committed = Committed::new(folder.path().join("deep/ptx"));
        assert_eq!(committed.stale(&suites("a")).unwrap(), ["k.f32.ptx.xz is missing or was not made from its source"]);
        assert_eq!(committed.renew(&suites("a"), compile), Ok((1, 0, vec![])));
        assert_eq!(committed.renew(&suites("a"), compile), Ok((0, 0, vec![])));
        assert_eq!(committed.stale(&suites("a")).unwrap(), [] as [&str; 0]);
        assert_eq!(committed.stale(&suites("b")).unwrap().len(), 1, "another source");
        std::fs::write(folder.path().join("deep/ptx/old.f32.ptx.xz"), "").unwrap();
        assert_eq!(committed.stale(&suites("a")).unwrap(), ["old.f32.ptx.xz belongs to no kernel"]);
        std::fs::write(folder.path().join("deep/ptx/k.bf16.ptx.xz"), "").unwrap();
        assert_eq!(committed.renew(&suites("b"), compile), Ok((1, 1, vec!["old.f32.ptx.xz".into()])));
        assert!(folder.path().join("deep/ptx/old.f32.ptx.xz").exists(), "it may be another gate's");
        assert!(!folder.path().join("deep/ptx/k.bf16.ptx.xz").exists(), "a dtype that the kernel no longer has");
    }

    #[test]
    fn a_program_is_found_by_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let committed = Committed::new(folder.path().into());
        committed.renew(&suites("a"), compile).unwrap();
        let found = |text: &str| {
            let suites = suites(text);
            let Body::Cuda(kernel) = &suites[0].candidates[0].body else { panic!("a kernel") };
            committed.find(&kernel.program, DType::F32).map(|ptx| ptx.text)
        };
        assert_eq!((found("a"), found("b")), (Some("a".into()), None));
    }

    #[test]
    fn a_damaged_file_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let committed = Committed::new(folder.path().into());
        committed.renew(&suites("a"), compile).unwrap();
        let path = folder.path().join("k.f32.ptx.xz");
        let whole = std::fs::read(&path).unwrap();
        for damaged in [&whole[..whole.len() / 2], b"no XZ file", &[]] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(committed.stale(&suites("a")).unwrap().len(), 1, "{} bytes", damaged.len());
        }
    }

    #[test]
    fn one_file_for_two_sources_is_refused() {
        let two = [suites("a"), suites("b")].concat();
        assert!(programs(&two).unwrap_err().contains("k.f32.ptx"));
    }
}
