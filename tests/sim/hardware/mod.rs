//! Agreement with a real GPU: the same launches there and here.
//!
//! Three steps, of which only the last is part of every run. `export` writes a folder that a machine with a GPU runs by
//! `fixtures/hardware/run.py`; `import` compares what came back with the simulator and writes `fixtures/hardware/outputs.txt.xz` and
//! `near.bin.xz`; the tests below hold the simulator to these for ever. `fixtures/hardware/README.md` has the commands.

mod counters;
mod families;
mod inputs;
mod launches;
mod operations;
mod record;
mod wavefronts;

use launches::Launched;
use record::{Distance, Line, Record};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn folder(variable: &str) -> PathBuf {
    std::env::var_os(variable).map(PathBuf::from).unwrap_or_else(|| panic!("{variable} names no folder"))
}

#[test]
#[ignore = "writes the folder KERNELGATE_HARDWARE for a machine with a GPU"]
fn export() {
    launches::export(launches::all(), &folder("KERNELGATE_HARDWARE"));
}

#[test]
#[ignore = "reads what a machine with a GPU left in KERNELGATE_HARDWARE and writes the fixtures"]
fn import() {
    let results = record::Results::read(&folder("KERNELGATE_HARDWARE"));
    let mut record = Record::new(&results);
    let mut different = Vec::new();
    for launched in launches::all() {
        let Some(there) = results.outputs(&launched.name) else {
            different.push(format!("{}: {}", launched.name, results.failure(&launched.name)));
            continue;
        };
        let here = launched.simulate();
        let distance = Distance::between(&there, &here, launched.format);
        if launched.is_exact && distance != Distance::default() {
            different.push(format!("{}: {distance:?} {}", launched.name, launched.describe_first(&there, &here)));
        }
        record.add(launched, &there, distance);
    }
    record.write();
    println!("{} launches differ:\n{}", different.len(), different.join("\n"));
}

#[test]
#[ignore = "reads what Nsight Compute left in KERNELGATE_HARDWARE and writes the fixture"]
fn import_counts() {
    let csv = std::fs::read_to_string(folder("KERNELGATE_HARDWARE").join("counters.csv")).expect("counters.csv");
    counters::write(launches::all(), &csv);
}

#[test]
#[ignore = "drops what the fixtures hold of launches that have changed since or are gone"]
fn prune() {
    let now: BTreeMap<String, String> = launches::all().iter().map(|of| (of.name.clone(), of.identity())).collect();
    Record::read().of(|line| now.get(&line.name) == Some(&line.of)).write();
}

/// Every exact launch has the hardware's bits, every other one comes as close as it came when the record was made.
#[test]
fn the_simulator_agrees_with_the_record_of_a_gpu() {
    let record = Record::read();
    let mut lines: BTreeMap<&str, &Line> = record.lines.iter().map(|line| (line.name.as_str(), line)).collect();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for launched in launches::all() {
        // A kernel that was changed since is compared when the record is made again.
        let Some(line) = lines.remove(launched.name.as_str()).filter(|line| line.of == launched.identity()) else {
            continue;
        };
        compared += 1;
        if let Some(why) = disagreement(launched, line, &record) {
            wrong.push(format!("{}: {why}", launched.name));
        }
    }
    crate::evidence::write("simulator-hardware.md", "The simulator beside a GPU", &record.table());
    assert!(wrong.is_empty(), "{} of {compared} disagree:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= 500, "{compared} launches of the record were compared");
}

/// Counts that agreed with Nsight Compute's still do; those that did not are as they were.
#[test]
fn counts_agree_with_the_record_of_a_gpu() {
    let launches = launches::all();
    let recorded = counters::read();
    let mut equal = 0;
    for (name, of, measured, simulated) in &recorded {
        let Some(launched) = launches.iter().find(|launched| launched.name == *name && launched.identity() == *of)
        else {
            continue;
        };
        assert_eq!(
            counters::simulated(launched),
            *simulated,
            "{name}: {:?}",
            counters::COUNTERS.map(|counter| counter.0)
        );
        equal += usize::from(measured == simulated);
    }
    crate::evidence::write("simulator-counters.md.xz", "Counts beside Nsight Compute", &counters::table(&recorded));
    assert!(equal >= 10, "{equal} of {} kernels have the counts of a GPU in full", recorded.len());
}

fn disagreement(launched: &Launched, line: &Line, record: &Record) -> Option<String> {
    let here = launched.simulate();
    if line.agreed_in_bits {
        return (record::digest(&here) != line.digest).then(|| "other bits than the GPU's".to_owned());
    }
    let there = record.raw(line)?;
    let distance = Distance::between(there, &here, launched.format);
    let further = distance.places > line.distance.places || distance.classes > line.distance.classes;
    further.then(|| format!("{distance:?}, the record has {:?}", line.distance))
}
