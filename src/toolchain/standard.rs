//! What a source compiled by NVRTC finds in place of the host's C library, and what is said of what it does not find.

use crate::core::candidate::{Program, included};

/// What stands in for the headers below.
const TEXT: &str = include_str!("../../kernels/standard.cuh");

/// The name under which it is included where a source uses its names without a header, as nvcc lets it.
const NAME: &str = "kernelgate_standard.cuh";

/// Headers of the C library whose device part NVRTC has built in, or `standard.cuh` has.
const HEADERS: [&str; 18] = [
    "assert.h", "cassert", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring",
    "float.h", "limits.h", "math.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h",
];

/// Names that nvcc knows without a header.
const NAMES: [&str; 20] = [
    "INFINITY",
    "NAN",
    "HUGE_VAL",
    "HUGE_VALF",
    "FLT_MAX",
    "FLT_MIN",
    "FLT_EPSILON",
    "DBL_MAX",
    "INT_MAX",
    "INT_MIN",
    "UINT_MAX",
    "M_PI",
    "int8_t",
    "uint8_t",
    "int16_t",
    "uint16_t",
    "int32_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
];

/// The standard headers that a program needs, with their text; they are part of what its code depends on.
pub fn headers(program: &Program) -> Vec<(&'static str, &'static str)> {
    let included = HEADERS.into_iter().filter(|name| texts(program).any(|text| includes(text, name)));
    included.chain(needs_names(program).then_some(NAME)).map(|name| (name, TEXT)).collect()
}

/// Whether a header of the C library is there.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "asked for where there is a compiler"))]
pub fn has(name: &str) -> bool {
    HEADERS.contains(&name)
}

/// The options that include what a source uses without a header.
pub fn options(program: &Program) -> Option<String> {
    needs_names(program).then(|| format!("--pre-include={NAME}"))
}

fn texts(program: &Program) -> impl Iterator<Item = &str> {
    std::iter::once(&*program.text).chain(program.headers.iter().map(|(_, text)| text.as_str()))
}

/// Whether a name of the standard library is used and not defined.
fn needs_names(program: &Program) -> bool {
    texts(program).any(|text| {
        let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let mut words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
        words.any(|word| NAMES.contains(&word))
    })
}

fn includes(text: &str, header: &str) -> bool {
    text.lines().any(|line| included(line) == Some(header))
}

/// What to do about a compiler's message, where that is known; `can_include` tells what a source can include.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "asked for where there is a compiler"))]
pub fn hint(log: &str, can_include: impl Fn(&str) -> bool) -> Option<String> {
    let missing = log.split("cannot open source file \"").nth(1).and_then(|rest| rest.split('"').next());
    if let Some(header) = missing {
        let is_of_host = !header.contains(['/', '.']);
        let how = if is_of_host && can_include(&format!("cuda/std/{header}")) {
            format!("NVRTC has no host library: include <cuda/std/{header}> and use `cuda::std`, or ")
        } else if is_of_host {
            "NVRTC has no host library, and the toolkit no such header for the device: do without it, or ".to_owned()
        } else if header.starts_with("torch/") || header.starts_with("ATen/") || header.starts_with("c10/") {
            "it belongs to host code, which NVRTC does not compile: keep kernel and host code in two files, or "
                .to_owned()
        } else {
            String::new()
        };
        return Some(format!(
            "{header}: {how}give its text with `.header(\"{header}\", include_str!(…))`, or its folder with \
             `.option(\"--include-path=…\")`"
        ));
    }
    if log.contains("/cub/") && log.contains("error") {
        return Some(
            "NVRTC takes the parts of CUB that run within a kernel: include them one by one, as <cub/block/block_reduce.cuh> and \
             <cub/warp/warp_scan.cuh>, in place of <cub/cub.cuh>"
                .into(),
        );
    }
    if log.contains("namespace \"std\" has no member") {
        return Some("NVRTC has no `std`: include <cuda/std/…> and use `cuda::std`".into());
    }
    let host = ["cudaMalloc", "cudaMemcpy", "cudaDeviceSynchronize", "cudaStream_t", "cudaError_t", "std::vector"];
    let found = host.into_iter().find(|name| log.contains(&format!("\"{name}\" is undefined")));
    found.map(|name| {
        format!("`{name}` is host code, which NVRTC does not compile: keep the kernels in a file of their own")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::nothing("float x = 1; // INFINITY is not used, nor <cmath>", &[])]
    #[case::a_header("#include <cstdio>\nint x;", &["cstdio"])]
    #[case::with_blanks("  #  include  \"math.h\"", &["math.h"])]
    #[case::a_name("float x = -INFINITY;", &[NAME])]
    #[case::both("#include <stdint.h>\nuint32_t x;", &["stdint.h", NAME])]
    #[case::part_of_a_name("int MINUS_INFINITY, my_uint32_t;", &[])]
    fn a_program_gets_what_it_uses(#[case] text: &str, #[case] expected: &[&str]) {
        let names: Vec<&str> = headers(&Program::of_cuda(text)).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected);
        assert_eq!(options(&Program::of_cuda(text)).is_some(), expected.contains(&NAME));
    }

    #[rstest]
    #[case("k.cu(1): catastrophic error: cannot open source file \"tuple\"", "<cuda/std/tuple>")]
    #[case("k.cu(1): catastrophic error: cannot open source file \"vector\"", "no such header for the device")]
    #[case("cannot open source file \"inttypes.h\"", "inttypes.h: give its text")]
    #[case("/include/cccl/cub/device/device_reduce.cuh(12): error: x", "<cub/block/block_reduce.cuh>")]
    #[case("cannot open source file \"torch/extension.h\"", "two files")]
    #[case("cannot open source file \"my/tile.cuh\"", ".header(\"my/tile.cuh\"")]
    #[case("namespace \"std\" has no member \"max\"", "cuda::std")]
    #[case("identifier \"cudaMalloc\" is undefined", "host code")]
    fn a_message_comes_with_what_to_do(#[case] log: &str, #[case] expected: &str) {
        let hint = hint(log, |name| name == "cuda/std/tuple").unwrap();
        assert!(hint.contains(expected), "{hint}");
    }

    #[test]
    fn other_messages_stay_alone() {
        assert_eq!(hint("error: expected a \";\"", |_| true), None);
    }
}
