//! The folder of a project's compiled kernels: with it, a machine needs no compiler to simulate them.

use super::ptx::Ptx;
use super::recipe::{Target, key};
use crate::core::candidate::{Body, Language, Program};
use crate::core::dtype::DType;
use crate::core::packed::{pack, text};
use crate::core::suite::Suite;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The architecture that the kept PTX is for, which the simulator simulates, as the compiler's options name it.
pub const ARCH: &str = "compute_90a";

/// The folder below that of the project.
pub const FOLDER: &str = "kernels/ptx";

/// The end of a file's name. The text is packed: compiled kernels are large, alike, and read by nobody in a diff;
/// `xz -dc` shows one.
const ENDING: &str = ".ptx.xz";

/// The line above the code of a dtype, before its name.
const OF_DTYPE: &str = "// dtype ";

/// A folder of compiled kernels, a file a program: its dtypes are alike, so that all of them packed take little more than one.
pub struct Committed {
    folder: PathBuf,
}

/// The texts of a file, by dtype.
type Texts = BTreeMap<&'static str, String>;

impl Committed {
    /// The folder, which need not exist.
    pub fn new(folder: PathBuf) -> Self {
        Committed { folder }
    }

    /// The PTX of a program, if it is there and was made from this very source.
    pub fn find(&self, program: &Program, dtype: DType) -> Option<Ptx> {
        current(&self.read(&file_name(program)).ok()?, program, dtype)
    }

    /// All that is kept, as `gelu.bf16.ptx` and its text.
    ///
    /// # Errors
    /// A file that cannot be read, or is none of packed texts.
    pub fn texts(&self) -> std::io::Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        for file in self.files() {
            let named = |(dtype, text)| (format!("{}.{dtype}.ptx", file.trim_end_matches(ENDING)), text);
            all.extend(self.read(&file)?.into_iter().map(named));
        }
        Ok(all)
    }

    /// The texts of a file of this folder.
    fn read(&self, file: &str) -> std::io::Result<Texts> {
        let all = text(std::fs::read(self.folder.join(file))?)?;
        let mut texts = Texts::new();
        for part in all.split(&format!("\n{OF_DTYPE}")) {
            let (dtype, text) = part.strip_prefix(OF_DTYPE).unwrap_or(part).split_once('\n').unwrap_or((part, ""));
            let known = DType::ALL.iter().find(|known| known.name() == dtype);
            let unknown = || std::io::Error::other(format!("{file}: no code of a dtype begins at `{dtype}`"));
            texts.insert(known.ok_or_else(unknown)?.name(), text.into());
        }
        Ok(texts)
    }

    /// What is wrong with the folder for these suites: kernels that are missing or were made from another source, those of no
    /// suite.
    ///
    /// # Errors
    /// Two programs that would have one file.
    pub fn stale(&self, suites: &[Suite]) -> Result<Vec<String>, String> {
        let wanted = programs(suites)?;
        let mut wrong = Vec::new();
        for (file, program) in &wanted {
            let texts = self.read(file).unwrap_or_default();
            let missing = program.dtypes.iter().filter(|&&dtype| current(&texts, &program.program, dtype).is_none());
            wrong.extend(missing.map(|dtype| format!("{file}: {dtype} is missing or was not made from its source")));
            let unwanted = texts.keys().filter(|name| !program.dtypes.iter().any(|dtype| dtype.name() == **name));
            wrong.extend(unwanted.map(|name| format!("{file}: {name} belongs to no kernel")));
        }
        let others = self.files().into_iter().filter(|file| !wanted.contains_key(file));
        wrong.extend(others.map(|file| format!("{file} belongs to no kernel")));
        Ok(wrong)
    }

    /// The names of its files, sorted.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(ENDING)).collect();
        names.sort();
        names
    }

    /// Writes the files of kernels that are missing or stale, as `compile` makes their PTX, without the dtypes that they no longer
    /// have. What is not of these kernels may be another gate's: it stays. Returns how many files were written, and the names of
    /// those that are of none of these kernels.
    ///
    /// # Errors
    /// What does not compile or cannot be written.
    pub fn renew(
        &self,
        suites: &[Suite],
        mut compile: impl FnMut(&Program, DType) -> Result<Ptx, String>,
    ) -> Result<(usize, Vec<String>), String> {
        let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, error))?;
        let wanted = programs(suites)?;
        let mut written = 0;
        for (file, Wanted { program, dtypes }) in &wanted {
            let there = self.read(file).unwrap_or_default();
            let mut texts = Texts::new();
            for &dtype in dtypes {
                let ptx = current(&there, program, dtype).map_or_else(|| compile(program, dtype), Ok)?;
                texts.insert(dtype.name(), ptx.to_string());
            }
            if texts != there {
                let parts: Vec<String> =
                    texts.iter().map(|(dtype, text)| format!("{OF_DTYPE}{dtype}\n{text}")).collect();
                let path = self.folder.join(file);
                let packed = pack(parts.join("\n").as_bytes());
                packed.and_then(|packed| std::fs::write(&path, packed)).map_err(|error| failed(&path, error))?;
                written += 1;
            }
        }
        Ok((written, self.files().into_iter().filter(|file| !wanted.contains_key(file)).collect()))
    }
}

/// The PTX among the texts of its file, if it was made from this very source.
fn current(texts: &Texts, program: &Program, dtype: DType) -> Option<Ptx> {
    Ptx::parse(texts.get(dtype.name())?).filter(|ptx| ptx.source == source_key(program, dtype))
}

/// `gelu.ptx.xz` for `kernels/gelu.cu`.
fn file_name(program: &Program) -> String {
    let stem = Path::new(&program.file).file_stem().unwrap_or_default().to_string_lossy();
    format!("{stem}{ENDING}")
}

fn source_key(program: &Program, dtype: DType) -> String {
    key(program, dtype, &Target::Ptx(ARCH.into()))
}

/// A program, and the dtypes that it runs in.
struct Wanted {
    program: Program,
    dtypes: Vec<DType>,
}

/// The CUDA programs of some suites, by the file that holds their PTX.
fn programs(suites: &[Suite]) -> Result<BTreeMap<String, Wanted>, String> {
    let mut all: BTreeMap<String, Wanted> = BTreeMap::new();
    for suite in suites {
        for candidate in &suite.candidates {
            let Body::Cuda(kernel) = &candidate.body else { continue };
            let program = &kernel.program;
            if program.language != Language::Cuda {
                continue;
            }
            for dtype in suite.dtypes_of(candidate) {
                let file = file_name(program);
                let of_file = Wanted { program: program.clone(), dtypes: Vec::new() };
                let wanted = all.entry(file.clone()).or_insert(of_file);
                if source_key(&wanted.program, dtype) != source_key(program, dtype) {
                    return Err(format!(
                        "two kernels would be kept as {file}: give their sources names of their own with `Cuda::file`, \
                         or the same headers and options"
                    ));
                }
                if !wanted.dtypes.contains(&dtype) {
                    wanted.dtypes.push(dtype);
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

    fn of(text: &str, dtypes: &[DType]) -> Vec<Suite> {
        let op = Op::<Vector>::new("k").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let cuda = || Cuda::source(text, "k", |_: &Vector| Launch::blocks(1, 1)).file("kernels/k.cu");
        let suite = Suite::of(op).dtypes(dtypes.to_vec());
        vec![dtypes.iter().fold(suite, |suite, dtype| suite.candidate(dtype.name(), cuda().dtypes([*dtype]))).into()]
    }

    fn suites(text: &str) -> Vec<Suite> {
        of(text, &[DType::F32, DType::BF16])
    }

    fn compile(program: &Program, dtype: DType) -> Result<Ptx, String> {
        Ok(Ptx { source: source_key(program, dtype), text: program.text.to_string(), ..Ptx::default() })
    }

    #[test]
    fn a_folder_is_renewed_where_it_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let committed = Committed::new(folder.path().join("deep/ptx"));
        let missing =
            ["f32", "bf16"].map(|dtype| format!("k.ptx.xz: {dtype} is missing or was not made from its source"));
        assert_eq!(committed.stale(&suites("a")).unwrap(), missing);
        assert_eq!(committed.renew(&suites("a"), compile), Ok((1, vec![])));
        assert_eq!(committed.renew(&suites("a"), compile), Ok((0, vec![])));
        assert_eq!(committed.stale(&suites("a")).unwrap(), [] as [&str; 0]);
        let names: Vec<String> = committed.texts().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["k.bf16.ptx", "k.f32.ptx"]);
        assert_eq!(committed.stale(&suites("b")).unwrap(), missing, "another source");
        assert_eq!(committed.stale(&of("a", &[DType::F32])).unwrap(), ["k.ptx.xz: bf16 belongs to no kernel"]);
        std::fs::write(folder.path().join("deep/ptx/old.ptx.xz"), "").unwrap();
        assert_eq!(committed.stale(&suites("a")).unwrap(), ["old.ptx.xz belongs to no kernel"]);
        assert_eq!(committed.renew(&of("a", &[DType::F32]), compile), Ok((1, vec!["old.ptx.xz".into()])));
        assert!(folder.path().join("deep/ptx/old.ptx.xz").exists(), "it may be another gate's");
        assert_eq!(
            committed.read("k.ptx.xz").unwrap().into_keys().collect::<Vec<_>>(),
            ["f32"],
            "what it no longer has"
        );
        assert!(committed.texts().is_err(), "a file of nothing");
    }

    #[test]
    fn a_program_is_found_by_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let committed = Committed::new(folder.path().into());
        committed.renew(&suites("a"), compile).unwrap();
        let found = |text: &str, dtype| {
            let suites = suites(text);
            let Body::Cuda(kernel) = &suites[0].candidates[0].body else { panic!("a kernel") };
            committed.find(&kernel.program, dtype).map(|ptx| ptx.text)
        };
        for dtype in [DType::F32, DType::BF16] {
            assert_eq!((found("a", dtype), found("b", dtype)), (Some("a".into()), None));
        }
        assert_eq!(found("a", DType::F16), None);
    }

    #[test]
    fn a_damaged_file_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let committed = Committed::new(folder.path().into());
        committed.renew(&suites("a"), compile).unwrap();
        let path = folder.path().join("k.ptx.xz");
        let whole = std::fs::read(&path).unwrap();
        let no_dtype = pack(b"no dtype\n").unwrap();
        for damaged in [&whole[..whole.len() / 2], b"no XZ file", &[], &no_dtype] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(committed.stale(&suites("a")).unwrap().len(), 2, "{} bytes", damaged.len());
        }
    }

    #[test]
    fn one_file_for_two_sources_is_refused() {
        let two = [suites("a"), suites("b")].concat();
        assert!(programs(&two).err().unwrap().contains("k.ptx"));
    }
}
