//! Summaries of shards as one: what stands in two of them, or does not belong together, is an error that names both.

use super::record::Record;
use super::summary::{NoiseEntry, Summary};
use super::text::line;
use std::collections::HashMap;

/// The shards as one summary, each with the name of its file.
///
/// # Errors
/// If there is none, if one result stands in two files, or if two files are not of one run of one gate on such devices.
pub fn shards(parts: Vec<(String, Summary)>) -> Result<Summary, String> {
    check_runs(&parts)?;
    check_devices(&parts)?;
    check_once(&parts, "trial", |summary| {
        let name = |record: &Record| format!("`{}` on {}", record.trial, place(record));
        summary.records.iter().map(name).collect()
    })?;
    check_once(&parts, "noise of", |summary| summary.noise.iter().map(NoiseEntry::name).collect())?;
    check_once(&parts, "comparison of", |summary| {
        let all = summary.builds.iter();
        all.map(|one| format!("`{}` {} on {}, turn {}", one.case.name(), one.case.shape, one.device, one.turn))
            .collect()
    })?;
    let mut parts = parts.into_iter().map(|(_, summary)| summary);
    let mut merged = parts.next().ok_or("no summary given")?;
    parts.for_each(|part| merged.merge(part));
    Ok(merged)
}

fn place(record: &Record) -> &str {
    record.fingerprint.as_deref().unwrap_or("no device")
}

/// All are of one gate.
fn check_runs(parts: &[(String, Summary)]) -> Result<(), String> {
    type Fact = (&'static str, fn(&Summary) -> Option<&str>);
    let facts: [Fact; 3] = [
        ("package", |summary| Some(&summary.run.package)),
        ("version of kernelgate", |summary| Some(&summary.run.kernelgate)),
        ("revision", |summary| summary.run.revision.as_deref()),
    ];
    for (what, fact) in facts {
        let mut known = parts.iter().filter_map(|(file, summary)| Some((file, fact(summary)?)));
        let Some((first, expected)) = known.next() else { continue };
        if let Some((other, found)) = known.find(|(_, found)| *found != expected) {
            return Err(format!(
                "{first} and {other} are not shards of one run: the {what} is `{}` in one and `{}` in the other; to let \
                 the later file win, give --newer",
                line(expected),
                line(found)
            ));
        }
    }
    Ok(())
}

/// What has one key is one kind of device with one driver.
fn check_devices(parts: &[(String, Summary)]) -> Result<(), String> {
    let mut seen = HashMap::new();
    for (file, summary) in parts {
        for entry in &summary.devices {
            let (first, known) = seen.entry(&entry.key).or_insert((file, &entry.fingerprint));
            if **known != entry.fingerprint {
                return Err(format!(
                    "{first} and {file} describe the device `{}` differently (driver `{}` and `{}`, compiler `{}` and \
                     `{}`): their times are not those of one device; to let the later file win, give --newer",
                    line(&entry.key),
                    line(&known.driver),
                    line(&entry.fingerprint.driver),
                    line(&known.compiler),
                    line(&entry.fingerprint.compiler)
                ));
            }
        }
    }
    Ok(())
}

/// Nothing stands in two files.
fn check_once(parts: &[(String, Summary)], what: &str, names: impl Fn(&Summary) -> Vec<String>) -> Result<(), String> {
    let mut seen: HashMap<String, &String> = HashMap::new();
    for (file, summary) in parts {
        // Binaries of one run may have trials of one name.
        let mut names = names(summary);
        names.sort();
        names.dedup();
        for name in names {
            if let Some(first) = seen.get(&name) {
                return Err(format!(
                    "the {what} {} stands in {first} and in {file}: shards must not overlap; to let the later file win, \
                     give --newer",
                    line(&name)
                ));
            }
            seen.insert(name, file);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Outcome;
    use crate::report::record::samples::{failed, passed, record, slower};
    use crate::report::summary::samples::run;

    fn part(file: &str, records: Vec<Record>) -> (String, Summary) {
        let mut summary = Summary::new(run(file));
        summary.add(records);
        (file.into(), summary)
    }

    #[test]
    fn shards_make_the_whole() {
        let whole = part("w", vec![passed(), failed(), slower()]).1;
        let merged = shards(vec![part("b", vec![slower()]), part("a", vec![passed(), failed()])]).unwrap();
        assert_eq!((&merged.records, &merged.counts), (&whole.records, &whole.counts));
        assert_eq!(merged.run.merged, ["a"]);
    }

    #[test]
    fn a_trial_in_two_files_names_both() {
        let skipped = record(&failed().trial, Outcome::skip("cut"));
        let why = shards(vec![part("a.json", vec![failed()]), part("b.json", vec![skipped])]).unwrap_err();
        let expected = "the trial `rows::naive::f16::correctness` on cpu-x-2 stands in a.json and in b.json";
        assert!(why.starts_with(expected), "{why}");
        let on = |device: &str| Record { fingerprint: Some(device.into()), ..passed() };
        let apart = shards(vec![part("a.json", vec![on("x")]), part("b.json", vec![on("y")])]);
        assert_eq!(apart.unwrap().records.len(), 2, "the same trial on two devices");
    }

    #[test]
    fn what_is_of_another_revision_or_device_names_both() {
        let (mut a, mut b) = (part("a.json", vec![passed()]), part("b.json", vec![failed()]));
        a.1.run.revision = Some("1111".into());
        assert!(shards(vec![a.clone(), b.clone()]).is_ok(), "one that does not say is let in");
        b.1.run.revision = Some("2222".into());
        let why = shards(vec![a.clone(), b.clone()]).unwrap_err();
        assert!(why.contains("a.json and b.json") && why.contains("`1111` in one and `2222`"), "{why}");
        b.1.run.revision = None;
        let device = |driver: &str| {
            let text = format!(
                r#"[{{"key": "k", "kind": "cuda", "name": "K", "arch": "", "units": 2, "cache_bytes": 0,
                    "memory_bytes": 0, "clock_mhz": 0, "driver": "{driver}", "compiler": ""}}]"#
            );
            serde_json::from_str(&text).unwrap()
        };
        (a.1.devices, b.1.devices) = (device("13.0"), device("13.1"));
        let why = shards(vec![a, b]).unwrap_err();
        assert!(why.contains("a.json and b.json describe the device `k`") && why.contains("`13.1`"), "{why}");
        assert!(shards(Vec::new()).is_err());
    }
}
