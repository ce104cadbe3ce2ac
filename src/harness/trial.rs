//! Trials: which there are, what they are called, which of them the arguments select. Looks at declarations only.

use super::arguments::Options;
use crate::check::Subject;
use crate::check::outcome::Check;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::suite::Suite;
use crate::device::DeviceKind;
use std::collections::HashSet;

/// One trial of a list of suites.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// `<operator>::<candidate>::<dtype>::<check>`.
    pub name: String,
    /// The index of its suite.
    pub suite: usize,
    /// The index of its candidate in the suite.
    pub candidate: usize,
    /// The dtype.
    pub dtype: DType,
    /// The check.
    pub check: Check,
    /// The kind of device that its candidate asks for.
    pub kind: DeviceKind,
    /// The file of its kernel, as the declaration names it.
    pub source: Option<String>,
    /// Whether it times a lesson, which is done on request alone.
    pub times_lesson: bool,
}

impl Trial {
    /// What the trial is about.
    pub fn subject<'a>(&self, suites: &'a [Suite]) -> Subject<'a> {
        let suite = &suites[self.suite];
        let candidate = &suite.candidates[self.candidate];
        Subject { operator: suite.operator.as_ref(), candidate, dtype: self.dtype }
    }

    /// Whether `filter` names this trial, wholly or in part.
    fn matches(&self, filter: &str, exact: bool) -> bool {
        if exact { self.name == filter } else { self.name.contains(filter) }
    }

    /// Whether the arguments select it.
    pub fn is_selected(&self, options: &Options) -> bool {
        let named = |filters: &[String]| filters.iter().any(|filter| self.matches(filter, options.exact));
        (options.filters.is_empty() || named(&options.filters))
            && !named(&options.skip)
            && (options.lessons || !self.times_lesson)
            && (options.dtypes.is_empty() || options.dtypes.contains(&self.dtype))
    }
}

/// Whether every filter names a trial and the arguments select at least one: a run of nothing is no pass.
///
/// # Errors
/// Which of the arguments matches nothing.
pub fn has_hits(all: &[Trial], options: &Options) -> Result<(), String> {
    if let Some(filter) = options.filters.iter().find(|f| !all.iter().any(|trial| trial.matches(f, options.exact))) {
        let how = if options.exact { "is called" } else { "has a name with" };
        return Err(format!("no trial {how} `{filter}`: `--list` names all {} trials", all.len()));
    }
    if !options.ignored && !all.iter().any(|trial| trial.is_selected(options)) {
        let dtypes: Vec<&str> = options.dtypes.iter().map(|dtype| dtype.name()).collect();
        let named = |what: &str, values: &[String]| {
            if values.is_empty() { String::new() } else { format!(" {what} {}", values.join(",")) }
        };
        let dtypes = if dtypes.is_empty() { String::new() } else { format!(" --dtype {}", dtypes.join(",")) };
        let (filters, skips) = (named("the filter", &options.filters), named("--skip", &options.skip));
        return Err(format!("no trial is left by{filters}{skips}{dtypes}: `--list` names all {} trials", all.len()));
    }
    Ok(())
}

/// All trials of some suites, the perf trials last, since they need the machine for themselves, and before them those
/// of kernels, which wait for each other: the host's have had all threads by then.
///
/// # Errors
/// If two trials would have one name, or a name could not stand in a filter.
pub fn trials(suites: &[Suite]) -> Result<Vec<Trial>, String> {
    trials_of(suites, |operator| !operator.perf_shapes().is_empty())
}

/// The same with perf trials for the operators that `is_timed` says.
///
/// # Errors
/// As [`trials`].
pub fn trials_of(suites: &[Suite], is_timed: impl Fn(&dyn Operator) -> bool) -> Result<Vec<Trial>, String> {
    let mut all = Vec::new();
    for (i, suite) in suites.iter().enumerate() {
        let operator = suite.operator.name();
        check_name("operator", operator)?;
        for (j, candidate) in suite.candidates.iter().enumerate() {
            check_name("candidate", &candidate.name)?;
            for dtype in suite.dtypes_of(candidate) {
                let timed = candidate.traits.timed && is_timed(suite.operator.as_ref());
                for check in Check::ALL.into_iter().filter(|&check| timed || check != Check::Perf) {
                    let name = format!("{operator}::{}::{dtype}::{}", candidate.name, check.name());
                    let kind = if candidate.body.is_host() { DeviceKind::Cpu } else { DeviceKind::Cuda };
                    let times_lesson = candidate.traits.lesson && check == Check::Perf;
                    let source = candidate.body.file().map(str::to_owned);
                    all.push(Trial { name, suite: i, candidate: j, dtype, check, kind, source, times_lesson });
                }
            }
        }
    }
    all.sort_by_key(|trial| (trial.check == Check::Perf, trial.kind));
    let mut seen = HashSet::new();
    match all.iter().find(|trial| !seen.insert(trial.name.as_str())) {
        Some(twice) => {
            Err(format!("two trials are called `{}`: give each candidate of an operator its own name", twice.name))
        }
        None => Ok(all),
    }
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!(
            "the {what} name `{name}` stands in trial and file names: use letters, digits, `_`, `-` and `.`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::core::operator::Op;
    use rstest::rstest;

    crate::shape! { struct Vector { n: 1..=8 } }

    fn suites() -> Vec<Suite> {
        use crate::core::candidate::{Cuda, Declare};
        use crate::core::launch::Launch;
        let op = |name: &str| Op::<Vector>::new(name).input("x", |s| [s.n]).output("y", |s| [s.n]);
        let kernel = Cuda::source("", "k", |_: &Vector| Launch::blocks(1, 1)).dtypes([DType::F32]);
        let cpu = || Cpu::new::<f32>(|_: &Vector, _, _| {});
        vec![
            Suite::of(op("gelu").perf([Vector { n: 4 }])).candidate("naive", cpu()).candidate("tiled", cpu()).into(),
            Suite::of(op("gelu_tanh")).candidate("kernel", kernel).candidate("naive", cpu()).into(),
        ]
    }

    #[test]
    fn a_trial_of_a_kernel_names_its_file() {
        let files: Vec<_> = trials(&suites()).unwrap().into_iter().filter_map(|t| Some((t.name, t.source?))).collect();
        let expected = ["correctness", "property"].map(|c| (format!("gelu_tanh::kernel::f32::{c}"), "k.cu".to_owned()));
        assert_eq!(files, expected);
    }

    #[test]
    fn names_and_order() {
        let names: Vec<_> = trials(&suites()).unwrap().into_iter().map(|trial| trial.name).collect();
        assert_eq!(
            names,
            [
                "gelu::naive::f32::correctness",
                "gelu::naive::f32::property",
                "gelu::tiled::f32::correctness",
                "gelu::tiled::f32::property",
                "gelu_tanh::naive::f32::correctness",
                "gelu_tanh::naive::f32::property",
                "gelu_tanh::kernel::f32::correctness",
                "gelu_tanh::kernel::f32::property",
                "gelu::naive::f32::perf",
                "gelu::tiled::f32::perf",
            ]
        );
    }

    #[rstest]
    #[case::all(&[], &[], false, 10)]
    #[case::part(&["gelu_tanh"], &[], false, 4)]
    #[case::two_filters(&["tiled", "gelu_tanh"], &[], false, 7)]
    #[case::two_skips(&[], &["perf", "property"], false, 4)]
    #[case::skip_wins(&["gelu"], &["gelu"], false, 0)]
    #[case::exact(&["gelu::naive::f32::perf"], &[], true, 1)]
    #[case::exact_is_whole(&["gelu::naive::f32"], &[], true, 0)]
    #[case::exact_skip(&[], &["gelu::naive::f32::perf", "gelu"], true, 9)]
    fn selection(#[case] filters: &[&str], #[case] skip: &[&str], #[case] exact: bool, #[case] expected: usize) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let options = Options { filters: owned(filters), skip: owned(skip), exact, ..Options::default() };
        let selected = trials(&suites()).unwrap().iter().filter(|trial| trial.is_selected(&options)).count();
        assert_eq!(selected, expected);
    }

    #[rstest]
    #[case::not_asked_for(&[], false, &["a::best::f32::perf"])]
    #[case::not_even_by_name(&["lesson1"], false, &[])]
    #[case::on_request(&[], true, &["a::lesson1::f32::perf", "a::best::f32::perf"])]
    fn lessons_are_timed_on_request(#[case] filters: &[&str], #[case] lessons: bool, #[case] expected: &[&str]) {
        use crate::core::candidate::Declare;
        let op = Op::<Vector>::new("a").input("x", |s| [s.n]).output("y", |s| [s.n]).perf([Vector { n: 4 }]);
        let cpu = || Cpu::new::<f32>(|_: &Vector, _, _| {});
        let suite = Suite::of(op).candidate("lesson1", cpu().lesson()).candidate("best", cpu());
        let filters = filters.iter().map(|&filter| filter.to_owned()).collect();
        let options = Options { filters, lessons, ..Options::default() };
        let selected: Vec<Trial> =
            trials(&[suite.into()]).unwrap().into_iter().filter(|trial| trial.is_selected(&options)).collect();
        let perf = selected.iter().filter(|trial| trial.check == Check::Perf).map(|trial| trial.name.as_str());
        assert_eq!(perf.collect::<Vec<_>>(), expected);
        let checked = selected.iter().filter(|trial| trial.name.starts_with("a::lesson1") && !trial.times_lesson);
        assert_eq!(checked.count(), 2, "correctness and property");
    }

    #[rstest]
    #[case::none_asked(&[], false, &[], None)]
    #[case::hit(&["gelu_tanh"], false, &[], None)]
    #[case::one_of_two(&["gelu_tanh", "gulu"], false, &[], Some("`gulu`"))]
    #[case::part_of_a_name(&["gelu::naive::f32"], true, &[], Some("is called `gelu::naive::f32`"))]
    #[case::dtype(&["gelu"], false, &[DType::I32], Some("no trial is left by the filter gelu --dtype i32"))]
    fn a_filter_without_a_hit_is_named(
        #[case] filters: &[&str],
        #[case] exact: bool,
        #[case] dtypes: &[DType],
        #[case] expected: Option<&str>,
    ) {
        let filters = filters.iter().map(|name| (*name).to_owned()).collect();
        let options = Options { filters, exact, dtypes: dtypes.to_vec(), ..Options::default() };
        match (has_hits(&trials(&suites()).unwrap(), &options), expected) {
            (Ok(()), None) => {}
            (Err(why), Some(expected)) => assert!(why.contains(expected), "{why}"),
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn one_name_twice_and_odd_names_are_refused() {
        let mut twice = suites();
        twice.extend(suites());
        assert!(trials(&twice).unwrap_err().contains("gelu::naive::f32::correctness"));
        let op = Op::<Vector>::new("a::b").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let odd = Suite::of(op).candidate("c", Cpu::new::<f32>(|_: &Vector, _, _| {})).into();
        assert!(trials(&[odd]).unwrap_err().contains("`a::b`"));
    }
}
