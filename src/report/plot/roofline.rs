//! Operations a second over operations a byte, under the roofs of the device.

use super::plane::{Mark, Plane, Point, Roof};
use super::{origin, shared, timings, title};
use crate::check::outcome::Timing;
use crate::core::dtype::DType;
use crate::report::ceiling::tensor;
use crate::report::record::Record;
use crate::report::summary::Summary;
use crate::report::text::line;

/// Peaks that differ by no more than this share are drawn as one roof, the higher one.
const ALIKE: f64 = 0.1;

/// The points of all timed shapes of one device, and its roofs.
pub fn plane(summary: &Summary, records: &[&Record]) -> Result<Plane, String> {
    let counted = |(_, timing): &(_, &Timing)| timing.flops > 0 && timing.bytes > 0;
    let timed: Vec<_> = timings(records).into_iter().filter(counted).collect();
    // Devices that nothing was timed on have no point.
    let records: Vec<&Record> = timed.iter().map(|(record, _)| *record).collect();
    let device = shared(&records, |record| record.fingerprint.as_deref().unwrap_or_default());
    if device.is_none() && !records.is_empty() {
        return Err("the timed records are of several devices: choose one with --device".into());
    }
    let by_candidate = shared(&records, |record| &record.operator).is_some();
    let series = |record: &Record| if by_candidate { line(&record.candidate) } else { record.dtype.name().to_owned() };
    let point = |(record, timing): &(&Record, &Timing)| Point {
        series: series(record),
        mark: mark(record.dtype),
        x: timing.flops as f64 / timing.bytes as f64,
        y: timing.flops as f64 / timing.median_us / 1e3,
    };
    let mut dtypes: Vec<DType> = records.iter().map(|record| record.dtype).collect();
    dtypes.sort();
    dtypes.dedup();
    let (roofs, remark) = roofs(summary, device.unwrap_or_default(), &dtypes);
    Ok(Plane {
        title: title("Roofline", &records),
        origin: origin(summary, &records) + &remark,
        x: "flop per compulsory byte".into(),
        y: "Gflop/s".into(),
        points: timed.iter().map(point).collect(),
        joined: false,
        roofs,
        marks: if by_candidate && dtypes.len() > 1 {
            dtypes.iter().map(|dtype| (mark(*dtype), dtype.name().into())).collect()
        } else {
            Vec::new()
        },
    })
}

fn mark(dtype: DType) -> Mark {
    match dtype {
        DType::F16 => Mark::Triangle,
        DType::BF16 => Mark::Square,
        _ => Mark::Circle,
    }
}

/// The roofs under which these dtypes stand, and what is to be said of them.
fn roofs(summary: &Summary, device: &str, dtypes: &[DType]) -> (Vec<Roof>, String) {
    let ceiling = |name: &str| summary.ceilings.iter().find(|c| c.device == device && c.name == name).map(|c| c.value);
    let slope = ceiling("copy").map(|rate| (rate, "copied")).or(ceiling("read").map(|rate| (rate, "read")));
    let Some((slope, how)) = slope else { return (Vec::new(), String::new()) };
    let mut peaks: Vec<(String, [f64; 2])> = Vec::new();
    let is_half = |dtype: &&DType| matches!(dtype, DType::F16 | DType::BF16);
    let halves: Vec<DType> = dtypes.iter().filter(is_half).copied().collect();
    for dtype in &halves {
        let Some(peak) = ceiling(&tensor(*dtype)) else { continue };
        match peaks.iter_mut().find(|(_, [_, most])| (peak / *most - 1.0).abs() <= ALIKE) {
            Some((names, [least, most])) => {
                *names = format!("{names}, {dtype}");
                (*least, *most) = (least.min(peak), most.max(peak));
            }
            None => peaks.push((dtype.to_string(), [peak; 2])),
        }
    }
    let tera = |[least, most]: [f64; 2]| {
        let from = if least < most { format!("{:.0} to ", least / 1e3) } else { String::new() };
        format!("{from}{:.0} Tflop/s", most / 1e3)
    };
    let mut remark = format!(" · {slope:.0} GB/s {how}");
    if peaks.is_empty() && !halves.is_empty() {
        remark += " · no roof of tensor cores is known here: 16-bit points may lie above";
    }
    let tensor = peaks.into_iter().map(|(dtypes, flat)| (format!("{dtypes} tensor cores, {}", tera(flat)), flat[1]));
    let fma = ceiling("fma").map(|flat| (format!("f32 FMA, {}", tera([flat; 2])), flat));
    let flat: Vec<_> = fma.into_iter().chain(tensor).collect();
    if flat.is_empty() {
        return (vec![Roof { name: "memory".into(), slope, flat: None }], remark);
    }
    let roofs = flat.into_iter().map(|(name, flat)| Roof { name, slope, flat: Some(flat) });
    (roofs.collect(), remark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ceiling::Ceiling;
    use crate::report::record::samples::slower;
    use crate::report::summary::samples::run;
    use std::collections::BTreeSet;

    fn summary(ceilings: &[(&str, f64)]) -> Summary {
        let device = || "nvidia-h200-132".to_owned();
        let mut summary = Summary::new(run("r"));
        let of = |dtype: DType| Record { dtype, trial: format!("gelu::fast::{dtype}::perf"), ..slower() };
        let elsewhere = Record { fingerprint: Some("cpu-x-2".into()), ..crate::report::record::samples::passed() };
        summary.add(vec![of(DType::F32), of(DType::F16), of(DType::BF16), elsewhere]);
        let ceiling =
            |&(name, value): &(&str, f64)| Ceiling { device: device(), name: name.into(), value, unit: String::new() };
        summary.ceilings = ceilings.iter().map(ceiling).collect();
        summary
    }

    fn drawn(ceilings: &[(&str, f64)]) -> Plane {
        let summary = summary(ceilings);
        plane(&summary, &summary.records.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn each_dtype_has_its_mark_and_its_roof() {
        let known =
            [("copy", 4000.0), ("fma", 60e3), ("tensor_bf16", 892e3), ("tensor_f16", 893e3), ("tensor_e4m3", 1.8e6)];
        let plane = drawn(&known);
        let roofs: Vec<_> = plane.roofs.iter().map(|roof| (roof.name.as_str(), roof.flat)).collect();
        let expected =
            [("f32 FMA, 60 Tflop/s", Some(60e3)), ("f16, bf16 tensor cores, 892 to 893 Tflop/s", Some(893e3))];
        assert_eq!(roofs, expected);
        let marks: BTreeSet<_> = plane.points.iter().map(|point| (point.series.as_str(), point.mark)).collect();
        assert_eq!(marks.len(), 3, "one candidate, and a mark a dtype: {marks:?}");
        assert_eq!(plane.marks.len(), 3);
    }

    #[test]
    fn a_missing_roof_of_tensor_cores_is_said() {
        let plane = drawn(&[("copy", 4000.0), ("fma", 60e3)]);
        assert_eq!(plane.roofs.len(), 1);
        assert!(plane.origin.contains("no roof of tensor cores is known here"), "{}", plane.origin);
    }

    #[test]
    fn only_devices_with_times_count() {
        assert_eq!(drawn(&[]).points.len(), 6, "the CPU of the other record has none");
        let mut summary = summary(&[]);
        summary.records[0].fingerprint = Some("nvidia-h100-132".into());
        let records: Vec<&Record> = summary.records.iter().collect();
        assert!(plane(&summary, &records).err().unwrap().contains("--device"));
    }
}
