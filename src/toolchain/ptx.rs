//! PTX as it is kept: what the simulator needs of the compiler's text, below a header that says what it was made from.

use super::recipe::hash;
use super::resources::Resources;
use std::fmt;
use std::path::Path;

/// The first line; the number is the version of the format.
const TITLE: &str = "// kernelgate ptx 2";

/// Compiled PTX with its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ptx {
    /// The hash of source, headers and options.
    pub source: String,
    /// The compiler and its version, `NVRTC 13.0`.
    pub compiler: String,
    /// The architecture, `compute_90a`.
    pub arch: String,
    /// What `ptxas` makes of the entries; none where it was not asked.
    pub resources: Vec<Resources>,
    /// The code.
    pub text: String,
}

impl Ptx {
    /// Keeps what the simulator needs of the PTX of a compiler. The sections of the debugger go, and so does whatever
    /// names a folder of this machine; `program` and the names of its headers stay. Labels, which are of one function, lose the
    /// number of it: equal code of two of them is equal text then, and packs better.
    pub fn trim(text: &str, program: &str) -> String {
        let mut kept = String::new();
        let (mut in_section, mut place, mut placed) = (false, None, None);
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(&first) = words.first() else { continue };
            if in_section || first.starts_with(".section") {
                in_section = first != "}";
                continue;
            }
            let is_mark = first.starts_with("$L__tmp") || first.starts_with("$L__func");
            if first.starts_with("//") || is_mark {
                continue;
            }
            if first == ".file" {
                kept += &file_line(line, &words, program);
                continue;
            }
            if let (".loc", [_, file, number, ..]) = (first, &words[..]) {
                place = Some(format!(".loc {file} {number} 0\n"));
                continue;
            }
            let is_instruction = !first.starts_with(['.', '$', '{', '}', '(', ')']);
            if is_instruction && place != placed {
                kept.extend(place.iter().map(String::as_str));
                placed.clone_from(&place);
            }
            let comment = words.iter().position(|word| word.starts_with("//")).unwrap_or(words.len());
            kept += &within_function(&words[..comment].join(" "));
            kept.push('\n');
        }
        kept
    }

    /// Reads what [`Ptx`] is displayed as; `None` for anything else, and where the text, or what is told of its entries, was
    /// changed since.
    pub fn parse(file: &str) -> Option<Ptx> {
        let mut ptx = Ptx::default();
        let mut digest = "";
        let mut rest = file.strip_prefix(TITLE)?.strip_prefix('\n')?;
        while let Some((line, below)) = rest.split_once('\n').filter(|(line, _)| line.starts_with("// ")) {
            let (name, value) = line["// ".len()..].split_once(' ')?;
            match name {
                "source" => ptx.source = value.into(),
                "digest" => digest = value,
                "compiler" => ptx.compiler = value.into(),
                "arch" => ptx.arch = value.into(),
                "entry" => ptx.resources.push(Resources::from_line(value)?),
                _ => return None,
            }
            rest = below;
        }
        ptx.text = rest.into();
        (digest == ptx.digest()).then_some(ptx)
    }

    /// The lines of the header that tell of the entries.
    fn entries(&self) -> String {
        self.resources.iter().map(|entry| format!("// entry {entry}\n")).collect()
    }

    fn digest(&self) -> String {
        hash(&[self.entries().as_bytes(), self.text.as_bytes()])
    }
}

impl fmt::Display for Ptx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ptx { source, compiler, arch, resources: _, text } = self;
        let (digest, entries) = (self.digest(), self.entries());
        write!(
            f,
            "{TITLE}\n// source {source}\n// digest {digest}\n// compiler {compiler}\n// arch {arch}\n{entries}{text}"
        )
    }
}

/// `$L_1` for `$L__BB0_1`.
fn within_function(line: &str) -> String {
    let mut parts = line.split("$L__BB");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |line, part| line + "$L" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// `.file 2 "common.cuh"`: the compiler writes absolute paths.
fn file_line(line: &str, words: &[&str], program: &str) -> String {
    let number = words.get(1).copied().unwrap_or_default();
    let path = line.split('"').nth(1).unwrap_or_default();
    let name = Path::new(path).file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name = if Path::new(path).ends_with(program) { program } else { &*name };
    format!(".file {number} \"{name}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPILED: &str =
        "//\n// Generated by NVIDIA NVVM Compiler\n//\n\n.version 9.0\n.target sm_90a\n\n\t// .globl\tk\n
.visible .entry k(\n\t.param .u64 k_param_0\n)\n{\n\t.reg .pred \t%p<2>;\n\t.reg .b32 \t%r<2>;\n\t.loc\t1 7 0\n\t.loc\t1 8 5
\tmov.u32 \t%r1, %tid.x;\n$L__tmp0:\n\t.loc\t2 3 5, function_name $L__info_string0, inlined_at 1 8 5
\tadd.s32 \t%r1, %r1, 1; // one\n\t.loc\t2 3 9\n$L__BB0_1:\n\t@%p1 bra \t$L__BB0_1;\n\tret;\n\n}
\t.file\t1 \"/home/a/kernels/k.cu\", 1, 2\n\t.file\t2 \"/home/a/common.cuh\"
\t.section\t.debug_str\n\t{\n$L__info_string0:\n.b8 95,0\n\n\t}\n";

    const KEPT: &str = ".version 9.0\n.target sm_90a\n.visible .entry k(\n.param .u64 k_param_0\n)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<2>;
.loc 1 8 0\nmov.u32 %r1, %tid.x;\n.loc 2 3 0\nadd.s32 %r1, %r1, 1;\n$L_1:\n@%p1 bra $L_1;\nret;\n}
.file 1 \"kernels/k.cu\"\n.file 2 \"common.cuh\"\n";

    #[test]
    fn code_and_lines_are_kept_and_folders_are_not() {
        assert_eq!(Ptx::trim(COMPILED, "kernels/k.cu"), KEPT);
        let module = crate::sim::Module::parse(KEPT).unwrap();
        assert_eq!(module.entries().collect::<Vec<_>>(), ["k"]);
    }

    #[test]
    fn a_file_round_trips_and_a_changed_one_is_refused() {
        let resources = Resources::from_line("k registers=4 stack=0 spills=0 shared=0 barriers=0").unwrap();
        let ptx = Ptx {
            source: "0123".into(),
            compiler: "NVRTC 13.0".into(),
            arch: "compute_90a".into(),
            resources: vec![resources],
            text: KEPT.into(),
        };
        let file = ptx.to_string();
        assert_eq!(Ptx::parse(&file), Some(ptx));
        assert_eq!(Ptx::parse(&file.replace("add.s32", "sub.s32")), None);
        assert_eq!(Ptx::parse(&file.replace("registers=4", "registers=5")), None);
        assert_eq!(Ptx::parse(KEPT), None);
    }
}
