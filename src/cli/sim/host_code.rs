//! The device part of a CUDA file: NVRTC knows no host code, so functions, variables and prototypes of the host are blanked
//! out, and `#include` lines of files that are not there. Lines keep their numbers.
//!
//! This is no C++ parser. It looks at what stands outside of all braces but those of namespaces, and judges each
//! declaration by its words. What it cannot tell stays, and NVRTC says what it makes of it.

/// Words of declarations that concern the device.
const DEVICE: [&str; 6] = ["__global__", "__device__", "__constant__", "__shared__", "__managed__", "__host__"];
/// Words that a declaration may have on either side, and which make no code by themselves.
const NEUTRAL: [&str; 10] =
    ["constexpr", "using", "typedef", "struct", "class", "union", "enum", "static_assert", "concept", "namespace"];

/// Words of a list of template parameters that are not their names.
const TYPES: [&str; 10] =
    ["template", "typename", "class", "int", "bool", "unsigned", "float", "double", "half", "size_t"];

/// What is left of a file, and what is not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DeviceCode {
    /// The text with blanks in the places of host code.
    pub text: String,
    /// Names of host functions and variables.
    pub host: Vec<String>,
    /// Files that were to be included.
    pub missing: Vec<String>,
    /// Instances of kernel templates that the host launches: `scale<float, 4>`.
    pub instances: Vec<String>,
    /// The names of kernel templates.
    pub templates: Vec<String>,
}

impl DeviceCode {
    /// The instance that the host launches and that ends like `entry`, or `entry` as it is.
    pub fn instance(&self, entry: &str) -> String {
        let packed = |text: &str| text.split_whitespace().collect::<String>();
        let ends = |instance: &&String| packed(instance).ends_with(&format!("::{}", packed(entry)));
        self.instances.iter().find(ends).cloned().unwrap_or_else(|| entry.to_owned())
    }
}

/// Takes a file apart; `is_there` tells whether a file can be included.
pub fn device_code(text: &str, is_there: impl Fn(&str) -> bool) -> DeviceCode {
    let mut code = DeviceCode { text: text.to_owned(), ..DeviceCode::default() };
    let plain = without_literals(text);
    let directives = directives(text, &plain, is_there);
    let mut blank: Vec<std::ops::Range<usize>> = directives.missing.iter().map(|(range, _)| range.clone()).collect();
    code.missing = directives.missing.iter().map(|(_, name)| name.clone()).collect();
    code.templates = templates(&plain);
    for range in host_ranges(&plain, &directives) {
        let part = &plain[range.clone()];
        code.host.push(name_of(part).to_owned());
        for instance in launched_instances(part) {
            if !code.instances.contains(&instance) {
                code.instances.push(instance);
            }
        }
        blank.push(range);
    }
    let mut bytes = code.text.into_bytes();
    for byte in blank.into_iter().flat_map(|range| range.collect::<Vec<_>>()) {
        if bytes[byte] != b'\n' {
            bytes[byte] = b' ';
        }
    }
    // Whole characters are blanked or none: ranges begin and end at ASCII.
    code.text = String::from_utf8_lossy(&bytes).into_owned();
    code
}

/// The text with blanks for comments and for what stands in quotes, byte for byte as long.
fn without_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = if rest.starts_with(b"//") {
            at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            text[at + 2..].find("*/").map_or(bytes.len(), |length| at + 2 + length + 2)
        } else if rest[0] == b'"' || (rest[0] == b'\'' && !follows_digit(bytes, at)) {
            closing(bytes, at)
        } else {
            at += 1;
            continue;
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether an apostrophe parts the digits of a number.
fn follows_digit(bytes: &[u8], at: usize) -> bool {
    at > 0 && bytes[at - 1].is_ascii_alphanumeric()
}

/// Behind the quote that closes the one at `at`, or the end of the line.
fn closing(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != bytes[at] && bytes[end] != b'\n' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// What the directives of a file say.
#[derive(Default)]
struct Directives {
    /// The `#include` lines of files that are not there.
    missing: Vec<(std::ops::Range<usize>, String)>,
    /// The macros that it defines.
    macros: Vec<String>,
    /// Those that stand for words of the device.
    of_device: Vec<String>,
}

fn directives(text: &str, plain: &str, is_there: impl Fn(&str) -> bool) -> Directives {
    let mut found = Directives::default();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let range = start..start + line.trim_end().len();
        start += line.len();
        let Some(directive) = plain[range.clone()].trim_start().strip_prefix('#') else { continue };
        let directive = directive.trim_start();
        if directive.starts_with("include") {
            let name = line.split(['<', '>', '"']).nth(1).unwrap_or_default().trim();
            if !name.is_empty() && !is_there(name) {
                found.missing.push((range, name.to_owned()));
            }
        } else if let Some(definition) = directive.strip_prefix("define")
            && let Some(name) = words(definition).next()
        {
            if DEVICE.iter().any(|word| definition.contains(word)) {
                found.of_device.push(name.to_owned());
            }
            found.macros.push(name.to_owned());
        }
    }
    found
}

/// The names of kernel templates.
fn templates(plain: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (at, word) in plain.match_indices("__global__") {
        let begins = plain[..at].rfind([';', '}', '#']).map_or(0, |end| end + 1);
        let behind = &plain[at + word.len()..];
        let mut rest = &behind[..behind.find(['{', ';']).unwrap_or(behind.len())];
        // Attributes have parentheses of their own.
        while let Some((_, behind)) = rest.split_once("__launch_bounds__") {
            let Some(end) = behind.find(')') else { break };
            rest = &behind[end + 1..];
        }
        let name = rest.split('(').next().and_then(|head| words(head).last());
        if let Some(name) = name.filter(|_| has_word(&plain[begins..at], &["template"]))
            && !found.iter().any(|known| known == name)
        {
            found.push(name.to_owned());
        }
    }
    found
}

/// Where host code stands, at the top level or in namespaces.
fn host_ranges(plain: &str, directives: &Directives) -> Vec<std::ops::Range<usize>> {
    let defines = &directives.of_device;
    let bytes = plain.as_bytes();
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'#' if line_begins(bytes, at) => {
                at = end_of_directive(bytes, at);
                start = at;
                continue;
            }
            b';' => {
                if is_host(&plain[start..at], defines) {
                    found.push(from_first_word(plain, start)..at + 1);
                }
                start = at + 1;
            }
            b'{' => {
                let head = &plain[start..at];
                if opens_namespace(head) {
                    start = at + 1;
                } else {
                    let end = matching_brace(bytes, at);
                    let initialises = head.trim_end().ends_with('=');
                    let is_code = is_host(head, defines) && (is_function(head) || initialises);
                    if is_code || is_macro_of_others(head, &directives.macros) {
                        let behind =
                            if initialises { plain[end..].find(';').map_or(end, |n| end + n + 1) } else { end };
                        found.push(from_first_word(plain, start)..behind);
                        start = behind;
                        at = behind;
                        continue;
                    }
                    at = end;
                    // Behind a type stands a semicolon, perhaps with names before it.
                    if is_function(head) {
                        start = end;
                    }
                    continue;
                }
            }
            b'}' => start = at + 1,
            _ => {}
        }
        at += 1;
    }
    found
}

fn line_begins(bytes: &[u8], at: usize) -> bool {
    bytes[..at].iter().rev().take_while(|byte| **byte != b'\n').all(u8::is_ascii_whitespace)
}

/// Behind the directive that begins here, with the lines that it goes on in.
fn end_of_directive(bytes: &[u8], at: usize) -> usize {
    let mut end = at;
    while end < bytes.len() {
        if bytes[end] == b'\n' {
            let before = bytes[..end].iter().rev().find(|byte| !matches!(byte, b' ' | b'\r' | b'\t'));
            if before != Some(&b'\\') {
                return end + 1;
            }
        }
        end += 1;
    }
    end
}

fn matching_brace(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    bytes.len()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

fn has_word(text: &str, wanted: &[&str]) -> bool {
    words(text).any(|word| wanted.contains(&word))
}

fn opens_namespace(head: &str) -> bool {
    has_word(head, &["namespace"]) || words(head).eq(["extern"])
}

/// Whether a declaration is code or data of the host alone.
fn is_host(head: &str, defines: &[String]) -> bool {
    let is_defined = |word: &str| defines.iter().any(|define| define == word);
    if words(head).next().is_none() || has_word(head, &DEVICE) || words(head).any(is_defined) {
        return false;
    }
    let (template, rest) = split_template(head);
    let Some((before, _)) = rest.split_once('(') else {
        return template.is_empty() && !has_word(rest, &NEUTRAL) && !has_word(rest, &["const", "extern", "friend"]);
    };
    // A macro alone may be anything: `DISPATCH(float)`.
    words(before).count() >= 2 && !has_word(before, &NEUTRAL)
}

/// Whether the brace behind this begins the body of a macro's function, which the file does not define: `PYBIND11_MODULE`.
fn is_macro_of_others(head: &str, macros: &[String]) -> bool {
    let Some((before, _)) = head.split_once('(') else { return false };
    let mut words = words(before);
    let (Some(only), None) = (words.next(), words.next()) else { return false };
    !DEVICE.contains(&only) && !macros.iter().any(|name| name == only)
}

/// Whether the brace behind this begins the body of a function.
fn is_function(head: &str) -> bool {
    split_template(head)
        .1
        .split_once('(')
        .is_some_and(|(before, _)| !has_word(before, &["struct", "class", "union", "enum"]))
}

/// `template <…>`, perhaps several, and what follows.
fn split_template(head: &str) -> (&str, &str) {
    let mut rest = head;
    while let Some(list) =
        rest.trim_start().strip_prefix("template").map(str::trim_start).filter(|l| l.starts_with('<'))
    {
        let mut depth = 0usize;
        let close = list.char_indices().find(|(_, c)| {
            match c {
                '<' => depth += 1,
                '>' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let Some((close, _)) = close else { break };
        rest = &list[close + 1..];
    }
    head.split_at(head.len() - rest.len())
}

fn from_first_word(plain: &str, start: usize) -> usize {
    start + plain[start..].len() - plain[start..].trim_start().len()
}

/// The name that a declaration gives: before its parentheses, or before `=`, `[` or the end.
fn name_of(declaration: &str) -> &str {
    let head = declaration.split(['(', '=', '[', ';', '{']).next().unwrap_or_default();
    words(head).last().unwrap_or("?")
}

/// `name<arguments>` before each `<<<` with arguments in angles, but for those that depend on the function's own.
fn launched_instances(host: &str) -> Vec<String> {
    let mut found = Vec::new();
    let own: Vec<&str> = words(split_template(host).0).filter(|word| !TYPES.contains(word)).collect();
    for (at, _) in host.match_indices("<<<") {
        let before = host[..at].trim_end();
        if !before.ends_with('>') {
            continue;
        }
        let mut depth = 0usize;
        let open = before.char_indices().rev().find(|(_, c)| {
            match c {
                '>' => depth += 1,
                '<' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let Some((open, _)) = open else { continue };
        let name_start =
            before[..open].rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).map_or(0, |n| n + 1);
        let instance = before[name_start..].split_whitespace().collect::<Vec<_>>().join(" ");
        if name_start < open && !has_word(&instance, &own) {
            found.push(instance);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"#include <iostream> // a stream
#include <cuda_fp16.h>
#include "missing.h"
#define HD __host__ __device__ \
    inline
#define CHECK(x) do { if (x) { exit(1); } } while (0)
constexpr int N = 1 << 20;
const int M = 3;
static float host_buffer[16];
struct __align__(8) Pair { float x; int y; Pair() : x(0), y(0) {} };
enum class Way { Up, Down };
typedef float4 vec;
using real = float;
namespace detail {
HD float twice(float x) { return x + x; }
__constant__ float table[4] = {1, 2, 3, 4};
int count = 0; /* { */
}
template <typename T, int K>
__global__ void __launch_bounds__(256) scale(T *x, int n) { if (n) { x[0] *= K; } }
__global__ void plain(float *x);
extern "C" __global__ void named(float *x) { x[0] = '"'; }
void fill(std::vector<float> &v);
template <class T> static void run(T *x) {
    scale<T, 2><<<1, 32>>>(x, 1);
}
std::vector<int> sizes = {1, 2, 3};
int main(int argc, char **argv) {
    printf("}}} %d\n", argc);
    scale<float, 4> <<<1, 128>>>(nullptr, 3);
    plain<<<1, 1>>>(nullptr);
    return 0;
}
__device__ float tail() { return 1'000; }
"#;

    #[test]
    fn host_code_is_blanked_and_device_code_stays() {
        let code = device_code(SAMPLE, |name| name == "cuda_fp16.h");
        assert_eq!(code.host, ["host_buffer", "count", "fill", "run", "sizes", "main"]);
        assert_eq!(code.missing, ["iostream", "missing.h"]);
        assert_eq!(code.instances, ["scale<float, 4>"]);
        assert_eq!(code.text.lines().count(), SAMPLE.lines().count());
        for kept in ["cuda_fp16.h", "CHECK(x)", "N = 1", "M = 3", "y(0) {} };", "enum class", "typedef", "using real"] {
            assert!(code.text.contains(kept), "{kept}\n{}", code.text);
        }
        for kept in ["twice", "table[4] = {1, 2, 3, 4};", "x[0] *= K; } }", "void plain", "x[0] = '\"'; }", "tail()"] {
            assert!(code.text.contains(kept), "{kept}\n{}", code.text);
        }
        for gone in ["iostream", "missing.h", "host_buffer", "count", "fill", "<<<", "sizes", "main"] {
            assert!(!code.text.contains(gone), "{gone}\n{}", code.text);
        }
    }

    #[test]
    fn what_binds_a_file_to_torch_is_blanked_and_an_alias_stays() {
        let text = "namespace cg = cooperative_groups;\n#define OURS(name) __global__ void name()\n\
                    OURS(kernel) { }\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n  m.def(\"f\", &f);\n}\n";
        let code = device_code(text, |_| true);
        assert_eq!(code.host, ["PYBIND11_MODULE"]);
        assert!(code.text.contains("namespace cg") && code.text.contains("OURS(kernel) { }"), "{}", code.text);
        assert!(!code.text.contains("m.def"), "{}", code.text);
    }

    #[test]
    fn an_instance_is_found_without_its_namespace() {
        let host = "int main() { ns::scale<float, 4><<<1, 2>>>(); other<1><<<1, 2>>>(); }";
        let code = device_code(host, |_| true);
        assert_eq!(code.instance("scale<float,4>"), "ns::scale<float, 4>");
        assert_eq!(code.instance("cale<float,4>"), "cale<float,4>");
        assert_eq!(code.instance("other<2>"), "other<2>");
    }

    #[test]
    fn templates_are_named() {
        assert_eq!(device_code(SAMPLE, |_| true).templates, ["scale"]);
        let two = "template <int N>\n__global__ void a(float *x) {}\n__global__ void b(int n) {}\n\
                   template <class T> __launch_bounds__(128) __global__ static void c(T *x);";
        assert_eq!(device_code(two, |_| true).templates, ["a", "c"]);
    }

    #[test]
    fn a_file_of_kernels_alone_stays_as_it_is() {
        let text = "#include \"kernelgate.cuh\"\nextern \"C\" __global__ void f(float *x) { *x = 1; }\n";
        let code = device_code(text, |_| true);
        assert_eq!(code, DeviceCode { text: text.into(), ..DeviceCode::default() });
    }

    #[test]
    fn what_ends_in_the_middle_is_no_reason_to_panic() {
        for at in 0..SAMPLE.len() {
            device_code(&SAMPLE[..at], |_| false);
        }
    }
}
