//! Right kernels are right and silent: in every mode, under many seeds.

use super::subject::{self, Group, Subject};
use super::{catalogue, mutation};
use kernelgate::sim::{Check, Module, Options};
use rayon::prelude::*;
use rstest::rstest;

fn silent(group: &Group, seeds: std::ops::Range<u64>) {
    let Some(first) = group.subjects.first() else { return };
    let module = Module::parse(&first.ptx).unwrap_or_else(|error| panic!("{}: {error}", first.name));
    let is_silent = |subject: &Subject, options: &Options, place: &str| {
        let place = format!("{}, {place}", subject.name);
        let outcome = subject.run(&module, options).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(outcome.findings, [], "{place}");
        assert_eq!(subject.wrong(&outcome, options), 0, "{place}");
    };
    for (at, subject) in group.subjects.iter().enumerate() {
        for (mode, options) in subject::fixed_modes() {
            is_silent(subject, &options, &format!("shape {at}, {mode}"));
        }
        for seed in seeds.clone() {
            for (mode, options) in subject::seeded_modes(seed + 1) {
                is_silent(subject, &options, &format!("shape {at}, {mode}, seed {}", seed + 1));
            }
        }
    }
    for (at, subject) in group.further.iter().enumerate() {
        is_silent(subject, &Options::default(), &format!("further shape {at}"));
    }
}

#[test]
fn fixtures_are_right_and_silent_under_20_seeds() {
    subject::fixtures().iter().for_each(|group| silent(group, 0..20));
}

#[test]
fn the_catalogue_is_right_and_silent_under_20_seeds() {
    let groups = catalogue::kernels();
    assert!(groups.len() > 20, "{} kernels", groups.len());
    groups.par_iter().for_each(|group| silent(group, 0..20));
}

/// Two slips around barrier objects, which hardware may forgive.
#[test]
fn objects_made_without_a_fence_or_twice_are_found() {
    let sums = subject::fixtures()
        .into_iter()
        .flat_map(|group| group.subjects)
        .find(|subject| subject.name.ends_with("sum_rows"));
    let sums = sums.expect("the subject");
    let found = |text: String| {
        let outcome = sums.run(&Module::parse(&text).unwrap(), &Options::default()).unwrap();
        outcome.findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; ")
    };
    assert!(found(sums.ptx.replace("fence.mbarrier_init.release.cluster;", "")).contains("no fence.mbarrier_init"));
    let body = sums.ptx.lines().skip(mutation::body(&sums.ptx, "sum_rows").start);
    let init = body.into_iter().find(|line| line.contains("mbarrier.init")).expect("the instruction");
    assert!(found(sums.ptx.replace(init, &format!("{init}\n{init}"))).contains("stands already"));
}

/// Hardware may or may not show it; the checks do, in the plain mode.
#[rstest]
fn a_forgotten_proxy_fence_is_found(#[values("bulk_pipeline scale", "split_k")] name: &str) {
    let subject = subject::fixtures()
        .into_iter()
        .flat_map(|group| group.subjects)
        .find(|subject| subject.name == name)
        .expect("the subject");
    let without: Vec<&str> = subject.ptx.lines().filter(|line| !line.contains("fence.proxy.async")).collect();
    let module = Module::parse(&without.join("\n")).unwrap();
    let outcome = subject.run(&module, &Options::default()).unwrap();
    let found: Vec<Check> = outcome.findings.iter().map(|finding| finding.check).collect();
    assert_eq!(found, [Check::AsyncCopy]);
    assert!(outcome.findings[0].message.contains("fence.proxy.async"), "{}", outcome.findings[0]);
}
