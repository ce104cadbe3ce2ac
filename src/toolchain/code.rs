//! What a candidate launches at a shape, as a hash: source, headers, options, entries and launches. Two builds that agree
//! in it differ in nothing that the device could be slower for. It needs no compiler and no GPU, so that any machine can
//! tell whether an accepted time is one of today's kernels.

use super::disk;
use super::recipe::{Target, hash, headers, options};
use crate::core::candidate::{Kernel, Program};
use crate::core::dtype::DType;
use crate::core::launch::{Argument, Launch};
use crate::core::tensor_map::{Fill, Swizzle, TensorMap};

/// Digits that are kept of a hash.
pub const DIGITS: usize = 12;

/// The hash of what a kernel launches at a point.
pub fn code_of(kernel: &Kernel, point: &[usize], dtype: DType) -> String {
    let mut parts = Vec::new();
    program_text(&kernel.program, dtype, &mut parts);
    let launches: Vec<Launch> = kernel.plan(point).0.into_iter().filter(|launch| !launch.is_empty()).collect();
    for (at, program) in launches.iter().enumerate().filter_map(|(at, launch)| Some((at, launch.program.as_ref()?))) {
        if launches[..at].iter().all(|before| before.program.as_ref() != Some(program)) {
            program_text(program, dtype, &mut parts);
        }
    }
    parts.extend(launches.iter().map(|launch| format!("{} {}", kernel.entry_of(launch, dtype), launch_text(launch))));
    let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
    hash(&parts)[..DIGITS].to_owned()
}

/// Everything that the code of a program depends on.
fn program_text(program: &Program, dtype: DType, parts: &mut Vec<String>) {
    // The architecture is that of the device, which a time is kept by.
    let options = options(program, dtype, &Target::Ptx(program.needs.clone().unwrap_or_default()));
    let headers = headers(program, dtype);
    parts.extend([without_comments(&program.text), without_comments(headers[0].1), options.join("\n")]);
    for (name, text) in &headers[1..] {
        parts.extend([(*name).to_owned(), without_comments(text)]);
    }
    for (file, text) in disk::headers(program) {
        parts.extend([file, without_comments(&text)]);
    }
}

/// Everything of a launch but its entry, spelt out: what a type is called in the program is none of its business.
fn launch_text(launch: &Launch) -> String {
    let arguments: Vec<String> = launch.arguments.iter().map(argument_text).collect();
    // Left out where it does not hold, so that what was measured before keeps its hash.
    let dependent = if launch.dependent { " dependent" } else { "" };
    let cooperative = if launch.cooperative { " cooperative" } else { "" };
    format!(
        "grid {} block {} shared {} cluster {}{cooperative}{dependent} pointers {} arguments {}",
        numbers(&launch.grid),
        numbers(&launch.block),
        launch.shared_bytes,
        launch.cluster,
        launch.pointers,
        arguments.join(" ")
    )
}

fn argument_text(argument: &Argument) -> String {
    match argument {
        Argument::Scalar(scalar) => scalar.bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
        Argument::Pointer { buffer, offset_bytes: 0 } => format!("&{buffer}"),
        Argument::Pointer { buffer, offset_bytes } => format!("&{buffer}+{offset_bytes}"),
        Argument::Map(map) => map_text(map),
    }
}

fn map_text(map: &TensorMap) -> String {
    let swizzle = match map.swizzle {
        Swizzle::None => 0,
        Swizzle::Bytes32 => 32,
        Swizzle::Bytes64 => 64,
        Swizzle::Bytes128 => 128,
    };
    let walk = map.im2col.map_or_else(String::new, |im2col| {
        format!(
            "{},{},{},{},{}",
            im2col.lower_corner[0],
            im2col.lower_corner[1],
            im2col.upper_corner[0],
            im2col.upper_corner[1],
            numbers(&im2col.stride)
        )
    });
    format!(
        "map({}+{} {} extents {} strides {} tile {} swizzle {swizzle} nan {} walk {walk})",
        map.buffer,
        map.offset_bytes,
        map.dtype.map_or("-", DType::name),
        numbers(&map.extents),
        map.strides.as_deref().map_or_else(String::new, numbers),
        numbers(&map.tile),
        map.fill == Fill::Nan,
    )
}

fn numbers(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// A source without its comments, and with one blank for any white space but ends of lines: what the compiler sees.
fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                text.push(' ');
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            }
            '"' | '\'' => {
                let len = literal(rest, c);
                text.push_str(&rest[..len]);
                len
            }
            c => {
                text.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Bytes of the literal that `text` begins with; of the quote alone where none ends on its line, as in `1'000`.
fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' if quote == '\'' => return 1,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Body, Cuda, IntoCandidate};
    use rstest::rstest;

    crate::shape! { struct Vector { n: 1..=64 } }

    fn code(cuda: Cuda<Vector>, dtype: DType) -> String {
        let Body::Cuda(kernel) = cuda.named("c").body else { panic!("a CUDA body") };
        code_of(&kernel, &[5], dtype)
    }

    fn launch() -> Launch {
        Launch::blocks(5, 32).scalar(5i32).map(TensorMap::of("x", [5, 8]))
    }

    #[test]
    fn everything_that_is_launched_counts() {
        let with =
            |text: &str, entry: &str, launch: Launch| Cuda::source(text, entry, move |_: &Vector| launch.clone());
        let base = || with("int a;", "f_{dtype}", launch());
        let of_map = |map: TensorMap| with("int a;", "f_{dtype}", Launch::blocks(5, 32).scalar(5i32).map(map));
        let first = code(base(), DType::F32);
        assert_eq!(first, code(base(), DType::F32));
        assert_eq!(first.len(), DIGITS);
        let others = [
            code(base(), DType::F16),
            code(with("int b;", "f_{dtype}", launch()), DType::F32),
            code(with("int a;", "g_{dtype}", launch()), DType::F32),
            code(base().header("h", ""), DType::F32),
            code(base().header("h", "int c;"), DType::F32),
            code(base().option("-DX"), DType::F32),
            code(with("int a;", "f_{dtype}", launch().shared(16)), DType::F32),
            code(with("int a;", "f_{dtype}", launch().cluster(2)), DType::F32),
            code(with("int a;", "f_{dtype}", launch().cooperative()), DType::F32),
            code(with("int a;", "f_{dtype}", launch().scalar(1i32)), DType::F32),
            code(with("int a;", "f_{dtype}", launch().without_pointers()), DType::F32),
            code(with("int a;", "f_{dtype}", Launch { grid: [6, 1, 1], ..launch() }), DType::F32),
            code(with("int a;", "f_{dtype}", Launch { block: [64, 1, 1], ..launch() }), DType::F32),
            code(of_map(TensorMap::of("x", [5, 8]).swizzle(Swizzle::Bytes32)), DType::F32),
            code(of_map(TensorMap::of("x", [5, 8]).tile([1, 8])), DType::F32),
            code(of_map(TensorMap::of("y", [5, 8])), DType::F32),
        ];
        let different: std::collections::BTreeSet<&String> = others.iter().chain([&first]).collect();
        assert_eq!(different.len(), others.len() + 1, "two of them have one hash: {others:?}");
    }

    #[test]
    fn comments_and_white_space_do_not_count() {
        let of = |text: &str| code(Cuda::source(text, "f", |_: &Vector| launch()), DType::F32);
        assert_eq!(of("int a; // one\n/* two\n */ int b;\n"), of("int  a;\n\n  int b;"));
        assert_ne!(of("int a = b / c;"), of("int a = b;"));
    }

    #[rstest]
    #[case("a // b", "a")]
    #[case("a /* b */ c", "a c")]
    #[case("x = \"// no\"; // yes", "x = \"// no\";")]
    #[case("x = \"\\\"// no\"; // yes", "x = \"\\\"// no\";")]
    #[case("n = 1'000; // yes\nb", "n = 1'000;\nb")]
    #[case("c = '\"'; // yes", "c = '\"';")]
    #[case("#define A \\\n  b", "#define A \\\nb")]
    #[case("/* open", "")]
    fn comments_are_taken_out(#[case] source: &str, #[case] expected: &str) {
        assert_eq!(without_comments(source), expected);
    }
}
