//! Accepted times are those of today's kernels: every row of `snapshots/perf` names a candidate, a dtype and a shape that
//! the gate times, and carries the hash of what it launches there now. A time of a kernel that has changed since says
//! nothing; it is taken again, or goes.

use kernelgate::baseline::{Row, Table, read};
use kernelgate::core::candidate::Body;
use kernelgate::core::shape::{describe, parse};
use kernelgate::core::suite::Suite;
use kernelgate::measure::threshold::{NoiseTable, case_name};
use kernelgate::ops::catalogue;
use kernelgate::prelude::*;
use kernelgate::toolchain::code::code_of;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// What a row should be, or what is wrong with it. Host code has no hash.
fn fault(suite: &Suite, body: &Body, dtype: DType, row: &Row) -> Option<String> {
    let operator = suite.operator.as_ref();
    let Ok(point) = parse(operator.axes(), &row.shape) else { return Some("is no shape of the operator".into()) };
    if !operator.perf_shapes().iter().any(|listed| describe(operator.axes(), listed) == row.shape) {
        return Some("is not timed any more".into());
    }
    let now = match body {
        Body::Cuda(kernel) => Some(code_of(kernel, &point, dtype)),
        _ => None,
    };
    let or_dash = |code: &Option<String>| code.clone().unwrap_or_else(|| "-".into());
    (row.code != now).then(|| format!("is a time of {}, and the kernel is {} now", or_dash(&row.code), or_dash(&now)))
}

/// The GPU whose times a file has: its folder, `nvidia-h200-132`, ends in the multiprocessors.
fn gpu_of(file: &Path) -> Gpu {
    let folder = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let multiprocessors = folder.rsplit('-').next().and_then(|last| last.parse().ok());
    multiprocessors.map_or(Gpu::SIMULATED, Gpu::with_multiprocessors)
}

/// What is wrong with the rows of a file.
fn faults(file: &Path, of: &BTreeMap<String, (usize, usize, DType)>, suites: &[Suite]) -> Vec<String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(&(suite, candidate, dtype)) = of.get(&name) else {
        return vec![format!("{}: there is no such candidate", file.display())];
    };
    let table = match read::<Table>(file) {
        Ok(table) => table.unwrap_or_default(),
        Err(why) => return vec![why],
    };
    let (suite, body) = (&suites[suite], &suites[suite].candidates[candidate].body);
    let fault = |row: &Row| Some(format!("{}: {} {}", file.display(), row.shape, fault(suite, body, dtype, row)?));
    gpu_of(file).during(|| table.rows.iter().filter_map(fault).collect())
}

/// The candidates by the name of their snapshot.
fn by_file(suites: &[Suite]) -> BTreeMap<String, (usize, usize, DType)> {
    let mut all = BTreeMap::new();
    for (s, suite) in suites.iter().enumerate() {
        for (c, candidate) in suite.candidates.iter().enumerate() {
            let file = |dtype| format!("{}.{}.{dtype}.snap", suite.operator.name(), candidate.name);
            all.extend(suite.dtypes_of(candidate).map(|dtype| (file(dtype), (s, c, dtype))));
        }
    }
    all
}

/// The cases of a noise table that no candidate has: the classes of launch times decide of all others.
fn unknown(table: &NoiseTable, suites: &[Suite]) -> Vec<String> {
    let mut timed = BTreeSet::new();
    for suite in suites {
        let operator = suite.operator.as_ref();
        for candidate in &suite.candidates {
            for (dtype, point) in
                suite.dtypes_of(candidate).flat_map(|d| operator.perf_shapes().iter().map(move |p| (d, p)))
            {
                timed.insert(case_name(operator.name(), &candidate.name, dtype, &describe(operator.axes(), point)));
            }
        }
    }
    table.cases.keys().filter(|name| !timed.contains(*name)).cloned().collect()
}

#[test]
fn noise_is_known_of_cases_that_are_timed() {
    for file in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/noise")) {
        let mut table: NoiseTable = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let unknown_of = unknown(&table, &catalogue());
        assert!(unknown_of.is_empty(), "{}: of no candidate: {unknown_of:#?}", file.display());
        let known = table.cases.pop_first().expect("a case");
        table.cases.insert(known.0.replace("::cuda::", "::cuda_v3::"), known.1);
        assert_eq!(unknown(&table, &catalogue()).len(), 1);
    }
}

#[test]
fn no_accepted_time_is_older_than_its_kernel() {
    let (suites, folder) = (catalogue(), Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/perf"));
    let of = by_file(&suites);
    let snapshots = files(&folder).into_iter().filter(|file| file.extension().is_some_and(|end| end == "snap"));
    let stale: Vec<String> = snapshots.flat_map(|file| faults(&file, &of, &suites)).collect();
    assert!(
        stale.is_empty(),
        "{} rows are stale: take them again on that device and accept them with `cargo insta review`, or delete them:\n{}",
        stale.len(),
        stale.join("\n")
    );
}

#[test]
fn a_stale_row_is_noticed() {
    let suites = catalogue();
    let of = by_file(&suites);
    let (file, &(suite, candidate, dtype)) = of.iter().find(|(file, _)| file.starts_with("gelu.cuda")).unwrap();
    let Body::Cuda(kernel) = &suites[suite].candidates[candidate].body else { panic!("a CUDA body") };
    let operator = suites[suite].operator.as_ref();
    let point = &operator.perf_shapes()[0];
    let (shape, code) = (describe(operator.axes(), point), code_of(kernel, point, dtype));
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, shape: &str, code: &str| {
        let path = folder.path().join(name);
        let header = "shape | heat | median us | +- % | ceiling % | yardstick us | epoch us | code";
        let row = format!("{shape} | cold | 2 | 0.1 | - | - | 2/- | {code}");
        std::fs::write(&path, format!("---\na: b\n---\nkernelgate perf 1\n{header}\n{row}\n")).unwrap();
        faults(&path, &of, &suites).len()
    };
    assert_eq!(check(file, &shape, &code), 0);
    assert_eq!(check(file, &shape, "0123456789ab"), 1, "another kernel");
    assert_eq!(check(file, &shape, "-"), 1, "of no known kernel");
    assert_eq!(check(file, "n=12345", &code), 1, "not timed");
    assert_eq!(check("gelu.cuda_v0.f32.snap", &shape, &code), 1, "no such candidate");
}
