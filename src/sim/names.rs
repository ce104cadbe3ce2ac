//! Names of kernels as the source has them, from those that a C++ compiler gives them.

use cpp_demangle::{DemangleOptions, Symbol};

/// `_Z5scaleIfLi4EEvPT_i` is `scale<float, 4>`: the name with its template arguments, without the types of the parameters.
/// Names that no compiler mangled stay as they are.
pub fn source_name(entry: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    let demangled = Symbol::new(entry).ok().and_then(|symbol| symbol.demangle_with_options(&options).ok());
    demangled.unwrap_or_else(|| entry.to_owned())
}

/// Whether `wanted`, as a person writes it, is the name of an entry: mangled, or as in the source, with its template
/// arguments or, where it needs none to be told apart, without.
pub fn is_named(entry: &str, wanted: &str) -> bool {
    let squeezed = |name: &str| name.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    entry == wanted || squeezed(&source_name(entry)) == squeezed(wanted)
}

/// Whether `wanted` is its name without template arguments and namespaces.
pub fn is_called(entry: &str, wanted: &str) -> bool {
    let name = source_name(entry);
    let without = name.split('<').next().unwrap_or_default();
    without == wanted || without.rsplit("::").next() == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(source_name("_Z5scaleIfLi4EEvPT_iS0_"), "scale<float, 4>");
        assert_eq!(source_name("_Z9vectorAddPKfS0_Pfi"), "vectorAdd");
        assert_eq!(source_name("_ZN6detail4copyIiEEvPKT_PS1_"), "detail::copy<int>");
        assert_eq!(source_name("softmax_f32"), "softmax_f32");
        assert_eq!(source_name("_Znonsense"), "_Znonsense");
    }

    #[test]
    fn a_person_need_not_write_blanks_or_mangle() {
        let entry = "_ZN6detail5scaleIfLi4EEEvPT_i";
        assert!(is_named(entry, "detail::scale<float,4>") && is_named(entry, entry));
        assert!(!is_named(entry, "scale<float,4>") && !is_named(entry, "scale"));
        assert!(is_called(entry, "scale") && is_called(entry, "detail::scale") && !is_called(entry, "cale"));
    }
}
