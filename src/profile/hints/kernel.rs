//! What a launch itself shows: a last wave that is hardly filled, registers that leave few warps, scattered access.

use super::idea::{Idea, Input, hint, percent};
use super::seen::Seen;
use crate::check::outcome::Bound;
use crate::device::counts::resident_warps;
use crate::profile::shapes::merged;
use std::collections::BTreeMap;

/// Warps that a multiprocessor holds at the most.
const WARPS: f64 = 64.0;

/// With so many of them resident, latency is hidden where it can be.
const ENOUGH: f64 = 0.5;

/// More sectors than this over the fewest are worth a word.
const SCATTERED: f64 = 1.25;

/// Waves beyond which a partial one hardly counts.
const MANY_WAVES: f64 = 8.0;

/// Of each kernel, over all shapes that count up.
pub fn ideas(input: &Input<'_>) -> Vec<Idea> {
    let mut kernels: BTreeMap<(&str, &str, &str), Vec<&Seen>> = BTreeMap::new();
    for seen in input.seen {
        let work = &seen.work;
        kernels.entry((&work.operator, &work.candidate, work.dtype.name())).or_default().push(seen);
    }
    let mut all = Vec::new();
    for of_kernel in kernels.values() {
        let shapes = merged(of_kernel.iter().map(|seen| seen.facts.shape.as_str()));
        let mut groups: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
        for seen in of_kernel {
            groups.entry(&shapes[seen.facts.shape.as_str()]).or_default().push(seen);
        }
        for (shape, group) in groups {
            let rules = [
                group.iter().filter_map(|seen| waves(input, seen)).collect::<Vec<_>>(),
                group.iter().filter_map(|seen| occupancy(input, seen)).collect(),
                group.iter().filter_map(|seen| sectors(seen)).collect(),
            ];
            all.extend(rules.into_iter().filter_map(|ideas| together(ideas, group[0], shape)));
        }
    }
    all
}

/// What one rule says of the shapes of a kernel: the evidence is that of the largest gain.
fn together(ideas: Vec<Idea>, first: &Seen, shape: &str) -> Option<Idea> {
    let (count, gain_us) = (ideas.len(), ideas.iter().map(|idea| idea.hint.gain_us).sum());
    let mut idea = ideas.into_iter().max_by(|a, b| a.hint.gain_us.total_cmp(&b.hint.gain_us))?;
    if count > 1 {
        idea.hint.place = format!("{}::{} {shape}", first.work.operator, first.work.candidate);
        idea.hint.evidence = format!("at one of {count} shapes: {}", idea.hint.evidence);
        idea.hint.gain_us = gain_us;
    }
    Some(idea)
}

/// Time in the last wave, for which some multiprocessors have no block.
fn waves(input: &Input<'_>, seen: &Seen) -> Option<Idea> {
    let shape = seen.shape?;
    let units = input.knowledge.limits.as_ref()?.units;
    let warps = f64::from(shape.block.iter().product::<u32>().div_ceil(32));
    let resident = seen.resources().map_or(WARPS, |r| resident_warps(&r, 32 * warps as usize, 0) as f64);
    let blocks = f64::from(shape.grid.iter().product::<u32>());
    let each = (resident / warps).floor().max(1.0);
    let waves = blocks / (units * each);
    if waves <= 1.0 || waves > MANY_WAVES {
        return None;
    }
    let lost = 1.0 - waves / waves.ceil();
    let gain_us = seen.calls * (seen.us * lost).min((seen.us - seen.facts.floor_us()).max(0.0));
    let evidence = format!(
        "{blocks:.0} blocks over {units:.0} multiprocessors of {each:.0} are {waves:.2} waves: {} of the last is empty",
        percent(waves.ceil() - waves)
    );
    let action = "another tile, or blocks that stay and take tiles in turn".into();
    Some(Idea { hint: hint("waves", seen.place(), action, evidence, gain_us, "roofline"), trial: None })
}

/// Latency that more resident warps would hide.
fn occupancy(input: &Input<'_>, seen: &Seen) -> Option<Idea> {
    let (shape, resources) = (seen.shape?, seen.resources()?);
    if input.knowledge.bound(seen.us, &seen.facts)? != Bound::Latency {
        return None;
    }
    let threads = shape.block.iter().product::<u32>() as usize;
    let occupancy = resident_warps(&resources, threads, 0) as f64 / WARPS;
    let unlimited = crate::toolchain::resources::Resources { registers: 32, ..resources.clone() };
    let without = resident_warps(&unlimited, threads, 0) as f64 / WARPS;
    if occupancy <= 0.0 || occupancy >= ENOUGH || without <= occupancy {
        return None;
    }
    // Latency that is hidden in proportion to the warps, up to the ceiling.
    let after = (seen.us * occupancy / without.min(ENOUGH)).max(seen.facts.floor_us());
    let evidence = format!(
        "{} registers a thread leave {} of the warps resident ({} without that limit); bound by latency at {} of the ceiling",
        resources.registers,
        percent(occupancy),
        percent(without),
        percent(seen.of_ceiling())
    );
    let action = "fewer registers a thread: __launch_bounds__, smaller tiles a thread".into();
    let gain_us = seen.calls * (seen.us - after);
    Some(Idea { hint: hint("occupancy", seen.place(), action, evidence, gain_us, "roofline"), trial: None })
}

/// Sectors that nobody asked for.
fn sectors(seen: &Seen) -> Option<Idea> {
    let sectors = seen.sectors.filter(|sectors| sectors.of_ideal > SCATTERED)?;
    let saved = (seen.facts.memory_us * (sectors.of_ideal - 1.0)).min((seen.us - seen.facts.floor_us()).max(0.0));
    let evidence = format!(
        "{:.2} sectors of global memory for each that the same bytes need (the simulator's count)",
        sectors.of_ideal
    );
    let action = "let neighbouring threads access neighbouring addresses".into();
    Some(Idea { hint: hint("coalesce", seen.place(), action, evidence, seen.calls * saved, "roofline"), trial: None })
}

#[cfg(test)]
mod tests {
    use super::super::Sectors;
    use super::super::tests::{input, seen_of};
    use super::*;
    use crate::core::dtype::DType;
    use crate::device::trace::Shape;
    use crate::profile::knowledge::Knowledge;
    use crate::profile::samples::suites;

    /// An H200, and softmax there.
    fn on_gpu<'a>(suites: &'a [crate::core::suite::Suite]) -> (Knowledge<'a>, Seen) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/calibration/nvidia-h200-132.json");
        let calibration = crate::calibrate::Calibration::read(&path).unwrap();
        let limits = crate::predict::Limits::of(&calibration).ok();
        let knowledge = Knowledge { suites, limits, fitted: None };
        let seen = seen_of(&knowledge, ("softmax", "cuda"), "rows=2048,cols=1024", DType::F32, 60.0, 1.0);
        (knowledge, seen)
    }

    fn rules(knowledge: &Knowledge<'_>, seen: Seen) -> Vec<(String, f64)> {
        let found = ideas(&input(knowledge, &[seen]));
        found.into_iter().map(|idea| (idea.hint.rule, idea.hint.gain_us)).collect()
    }

    #[test]
    fn a_hardly_filled_last_wave_costs_what_it_is_empty() {
        let suites = suites();
        let (knowledge, seen) = on_gpu(&suites);
        // Two blocks of 1024 threads a multiprocessor: 264 a wave.
        let shape = |blocks| Shape { grid: [blocks, 1, 1], block: [1024, 1, 1], registers: 32, shared_bytes: 0 };
        let found = rules(&knowledge, Seen { shape: Some(shape(265)), ..seen.clone() });
        assert_eq!(found.len(), 1);
        approx::assert_relative_eq!(found[0].1, 60.0 * (1.0 - 265.0 / 264.0 / 2.0), max_relative = 1e-9);
        assert!(
            rules(&knowledge, Seen { shape: Some(shape(528)), ..seen.clone() })[0].1.abs() < 1e-9,
            "two full waves"
        );
        assert!(rules(&knowledge, Seen { shape: Some(shape(264)), ..seen }).is_empty(), "one wave");
    }

    #[test]
    fn registers_that_leave_few_warps_are_told_where_latency_binds() {
        let suites = suites();
        let (knowledge, seen) = on_gpu(&suites);
        let shape = |registers| Shape { grid: [132, 1, 1], block: [256, 1, 1], registers, shared_bytes: 0 };
        let found = rules(&knowledge, Seen { shape: Some(shape(168)), ..seen.clone() });
        assert_eq!(found[0].0, "occupancy");
        // 8 of 64 warps, half would do.
        approx::assert_relative_eq!(found[0].1, 60.0 * 0.75 - 0.0, max_relative = 0.05);
        assert!(rules(&knowledge, Seen { shape: Some(shape(40)), ..seen.clone() }).is_empty(), "enough are resident");
        let fast = Seen { us: seen.facts.floor_us() * 1.2, shape: Some(shape(168)), ..seen };
        assert!(rules(&knowledge, fast).is_empty(), "latency does not bind it");
    }

    #[test]
    fn shapes_that_count_up_are_one_hint() {
        let suites = suites();
        let (knowledge, seen) = on_gpu(&suites);
        let shape = Shape { grid: [132, 1, 1], block: [256, 1, 1], registers: 168, shared_bytes: 0 };
        let at = |rows: usize| {
            let mut seen = Seen { shape: Some(shape), ..seen.clone() };
            seen.facts.shape = format!("rows={rows},cols=1024");
            seen
        };
        let all: Vec<Seen> = (2048..2056).map(at).collect();
        let each: f64 = ideas(&input(&knowledge, &all[..1]))[0].hint.gain_us;
        let found = ideas(&input(&knowledge, &all));
        assert_eq!(found.len(), 1, "{found:?}");
        approx::assert_relative_eq!(found[0].hint.gain_us, 8.0 * each, max_relative = 1e-9);
        assert_eq!(found[0].hint.place, "softmax::cuda rows=2048…2055,cols=1024");
        assert_eq!(ideas(&input(&knowledge, &[at(512), at(2048)])).len(), 2, "other shapes are other hints");
    }

    #[test]
    fn scattered_access_costs_its_sectors_at_the_most() {
        let suites = suites();
        let (knowledge, seen) = on_gpu(&suites);
        let with = |of_ideal| Seen { sectors: Some(Sectors { of_ideal }), ..seen.clone() };
        approx::assert_relative_eq!(rules(&knowledge, with(2.0))[0].1, seen.facts.memory_us, max_relative = 1e-9);
        let most = seen.us - seen.facts.floor_us();
        approx::assert_relative_eq!(rules(&knowledge, with(1e3))[0].1, most, max_relative = 1e-9);
        assert!(rules(&knowledge, with(1.0)).is_empty());
    }
}
