//! Traces for chrome://tracing and Perfetto: the Chrome Trace Event format, written compactly.
//!
//! Ranges of the host, driver calls and the work of each stream are complete events; a flow leads from what launched a kernel
//! to it; bandwidth, memory and the queue of work that was asked for and has not ended are counters.

use super::parts::Known;
use crate::device::trace::{Event, HOST_SPANS, Kind, Level, Timeline, Track};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Processes of the trace.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// The thread of what the program was doing. Perfetto takes thread 0 for none, so threads are numbered from 1 on.
const RANGES: u32 = 1;

/// The process and the thread of a track.
const fn place(track: Track) -> (u32, u32) {
    match track {
        Track::Host(thread) => (HOST, thread.saturating_add(2)),
        Track::Stream(stream) => (DEVICE, stream.saturating_add(1)),
    }
}

/// A counter has a value for each stretch of so long at the shortest: a counter for each kernel would be most of the file.
const STRETCH_NS: u64 = 100_000;

/// The whole trace; `known` tells how many bytes a step moves.
pub fn trace(timeline: &Timeline, known: &Known) -> String {
    let mut out = Writer { text: String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"), is_first: true };
    names(timeline, &mut out);
    for range in &timeline.ranges {
        // A step of the host is the event that it consists of.
        if range.level == Level::Step && timeline.source == HOST_SPANS {
            continue;
        }
        out.complete(timeline.texts.text(range.name), (HOST, RANGES), [range.start_ns, range.end_ns], "");
    }
    let launchers: BTreeMap<u32, &Event> = timeline
        .events
        .iter()
        .filter(|event| event.kind == Kind::Call && event.correlation != 0)
        .map(|event| (event.correlation, event))
        .collect();
    for event in timeline.events.iter().filter(|event| !matches!(event.kind, Kind::Allocate | Kind::Free)) {
        out.event(timeline, event, &launchers);
    }
    counters(timeline, known, &mut out);
    let other = json!({ "source": timeline.source, "lost": timeline.lost, "notes": timeline.notes });
    let _ = write!(out.text, "\n],\"otherData\":{other}}}\n");
    out.text
}

struct Writer {
    text: String,
    is_first: bool,
}

impl Writer {
    fn begin(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.text.push_str(",\n");
        }
    }

    /// A complete event; `more` is further members, each behind a comma.
    fn complete(&mut self, name: &str, (pid, tid): (u32, u32), [start_ns, end_ns]: [u64; 2], more: &str) {
        self.begin();
        let _ = write!(
            self.text,
            "{{\"ph\":\"X\",\"name\":{},\"pid\":{pid},\"tid\":{tid},\"ts\":{},\"dur\":{}{more}}}",
            json!(name),
            Us(start_ns),
            Us(end_ns.saturating_sub(start_ns)),
        );
    }

    fn event(&mut self, timeline: &Timeline, event: &Event, launchers: &BTreeMap<u32, &Event>) {
        let mut more = format!(",\"cat\":\"{}\"", event.kind.name());
        // A flow binds the slices that name it: out of the call, into the work.
        if event.correlation != 0 && launchers.contains_key(&event.correlation) {
            let way = if event.kind == Kind::Call { "flow_out" } else { "flow_in" };
            let _ = write!(more, ",\"bind_id\":\"{:x}\",\"{way}\":true", event.correlation);
        }
        let work = event.range.and_then(|id| timeline.work_of(id)).filter(|_| event.kind.is_work());
        let mut args = serde_json::Map::new();
        if let Some(work) = work {
            let work = &timeline.works[work.0 as usize];
            let extents: Vec<String> = work.point.iter().map(ToString::to_string).collect();
            args.insert("shape".into(), extents.join("x").into());
        }
        if event.bytes > 0 {
            args.insert("bytes".into(), event.bytes.into());
        }
        if let Some(shape) = &event.shape {
            let extents = |all: [u32; 3]| all.map(|extent| extent.to_string()).join("x");
            args.insert("grid".into(), extents(shape.grid).into());
            args.insert("block".into(), extents(shape.block).into());
            args.insert("registers".into(), shape.registers.into());
            args.insert("shared_bytes".into(), shape.shared_bytes.into());
        }
        if !args.is_empty() {
            let _ = write!(more, ",\"args\":{}", serde_json::Value::from(args));
        }
        self.complete(timeline.texts.text(event.name), place(event.track), [event.start_ns, event.end_ns], &more);
    }

    fn counter(&mut self, name: &str, at_ns: u64, unit: &str, value: f64) {
        self.begin();
        let value = (value * 100.0).round() / 100.0;
        let ts = Us(at_ns);
        let _ = write!(
            self.text,
            "{{\"ph\":\"C\",\"name\":\"{name}\",\"pid\":{DEVICE},\"ts\":{ts},\"args\":{{\"{unit}\":{value}}}}}"
        );
    }

    fn meta(&mut self, kind: &str, pid: u32, tid: Option<u32>, name: &str) {
        self.begin();
        let mut entry = json!({ "ph": "M", "name": kind, "pid": pid, "args": { "name": name } });
        if let Some(tid) = tid {
            entry["tid"] = tid.into();
        }
        let _ = write!(self.text, "{entry}");
    }
}

/// Nanoseconds as microseconds, without a digit too many.
struct Us(u64);

impl std::fmt::Display for Us {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            rest => write!(f, "{}.{}", self.0 / 1000, format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

fn names(timeline: &Timeline, out: &mut Writer) {
    out.meta("process_name", HOST, None, "host");
    out.meta("process_name", DEVICE, None, if timeline.source == HOST_SPANS { "host as the device" } else { "device" });
    out.meta("thread_name", HOST, Some(RANGES), "ranges");
    let tracks: BTreeSet<Track> = timeline.events.iter().map(|event| event.track).collect();
    for track in tracks {
        let (pid, tid) = place(track);
        let name = match track {
            Track::Host(thread) => format!("calls of thread {thread}"),
            Track::Stream(stream) => format!("stream {stream}"),
        };
        out.meta("thread_name", pid, Some(tid), &name);
    }
}

fn counters(timeline: &Timeline, known: &Known, out: &mut Writer) {
    // Bytes that steps move, over the time of the step, in stretches.
    let mut moved: BTreeMap<u64, f64> = BTreeMap::new();
    let mut memory: BTreeMap<u64, i64> = BTreeMap::new();
    let mut queue: BTreeMap<u64, i64> = BTreeMap::new();
    let end = timeline.events.iter().map(|event| event.end_ns).max().unwrap_or(0);
    let stretch = STRETCH_NS.max(end / 20_000);
    let launched: BTreeMap<u32, u64> = timeline
        .events
        .iter()
        .filter(|event| event.kind == Kind::Call && event.correlation != 0)
        .map(|event| (event.correlation, event.end_ns))
        .collect();
    let mut pieces: BTreeMap<crate::device::trace::RangeId, f64> = BTreeMap::new();
    let of_step = |event: &Event| event.range.and_then(|id| timeline.around(id, Level::Step));
    for event in timeline.events.iter().filter(|event| event.kind == Kind::Kernel) {
        if let Some(step) = of_step(event) {
            *pieces.entry(step).or_default() += 1.0;
        }
    }
    for event in &timeline.events {
        let signed = event.bytes as i64;
        match event.kind {
            Kind::Allocate => *memory.entry(event.start_ns / stretch).or_default() += signed,
            Kind::Free => *memory.entry(event.start_ns / stretch).or_default() -= signed,
            _ if event.kind.is_work() => {
                let facts = event.range.and_then(|id| timeline.work_of(id)).and_then(|work| known.get(&work));
                let of_facts = facts.map_or(0.0, |facts| facts.features.bytes());
                let share = of_step(event).and_then(|step| pieces.get(&step)).copied().unwrap_or(1.0);
                let bytes = if event.bytes > 0 { event.bytes as f64 } else { of_facts / share };
                spread(&mut moved, [event.start_ns, event.end_ns], bytes, stretch);
                let asked = launched.get(&event.correlation).copied().unwrap_or(event.start_ns);
                *queue.entry(asked.min(event.start_ns) / stretch).or_default() += 1;
                *queue.entry(event.end_ns / stretch + 1).or_default() -= 1;
            }
            _ => {}
        }
    }
    let mut last = 0;
    let is_any = !moved.is_empty();
    for (&at, &bytes) in &moved {
        // What is not said stays as it was.
        if at > last + 1 {
            out.counter("bandwidth", (last + 1) * stretch, "GB/s", 0.0);
        }
        out.counter("bandwidth", at * stretch, "GB/s", bytes / stretch as f64);
        last = at;
    }
    if is_any {
        out.counter("bandwidth", (last + 1) * stretch, "GB/s", 0.0);
    }
    let mut running = |name: &str, unit: &str, changes: &BTreeMap<u64, i64>, scale: f64| {
        let mut now = 0i64;
        for (&at, change) in changes {
            now += change;
            out.counter(name, at * stretch, unit, now.max(0) as f64 * scale);
        }
    };
    running("memory", "MB", &memory, 1e-6);
    running("queue", "launches", &queue, 1.0);
}

/// Spreads an amount over the stretches of its time.
fn spread(into: &mut BTreeMap<u64, f64>, [start_ns, end_ns]: [u64; 2], amount: f64, stretch: u64) {
    if amount <= 0.0 {
        return;
    }
    let whole = end_ns.saturating_sub(start_ns).max(1) as f64;
    for at in start_ns / stretch..=end_ns / stretch {
        let (from, to) = (start_ns.max(at * stretch), end_ns.min((at + 1) * stretch));
        *into.entry(at).or_default() += amount * to.saturating_sub(from).max(u64::from(whole <= 1.0)) as f64 / whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::parts::known;
    use crate::profile::samples::{Made, event, host_knowledge, suites};
    use serde_json::Value;

    /// The timeline of a GPU: two launches of a step, with their calls.
    fn launched() -> Made {
        let mut made = Made::default();
        made.timeline.source = "CUPTI".into();
        let run = made.range(Level::Run, "decode", None, 0, 400_000);
        for i in 0..2u64 {
            let from = 200_000 * i;
            let step = made.step(run, "add", 10_000, from, from + 5_000);
            let name = made.timeline.texts.number("add_kernel");
            let id = i as u32 + 1;
            let call = event(Kind::Call, Track::Host(0), [from, from + 4_000], id, Some(step));
            let kernel = event(Kind::Kernel, Track::Stream(7), [from + 6_001, from + 106_001], id, Some(step));
            made.timeline.events.extend([call, Event { name, ..kernel }]);
        }
        made.memory(Kind::Allocate, "weights", 8_000_000, 0, None);
        made
    }

    fn parsed(made: &Made) -> Vec<Value> {
        let suites = suites();
        let text = trace(&made.timeline, &known(&made.timeline, &host_knowledge(&suites)));
        let value: Value = serde_json::from_str(&text).unwrap();
        value["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn flows_lead_from_the_call_to_its_kernel() {
        let events = parsed(&launched());
        let bound = |way: &str, id: &str| -> Vec<&Value> {
            events.iter().filter(|e| e[way] == true && e["bind_id"] == id).collect()
        };
        for id in ["1", "2"] {
            let (out, into) = (bound("flow_out", id), bound("flow_in", id));
            assert_eq!((out.len(), into.len()), (1, 1));
            assert_eq!(
                (&out[0]["cat"], &into[0]["cat"], &into[0]["name"]),
                (&"driver call".into(), &"kernel".into(), &"add_kernel".into())
            );
            assert!(out[0]["ts"].as_f64() < into[0]["ts"].as_f64());
        }
        assert_eq!(bound("flow_in", "1")[0]["ts"], 6.001);
        assert_eq!(bound("flow_in", "1")[0]["args"]["shape"], "10000");
    }

    #[test]
    fn every_slice_is_on_a_thread_that_has_its_name_and_a_number() {
        let mut made = launched();
        for (kind, track) in [(Kind::Kernel, Track::Stream(0)), (Kind::Call, Track::Host(1))] {
            made.timeline.events.push(event(kind, track, [0, 10], 0, None));
        }
        let events = parsed(&made);
        let names: BTreeMap<(u64, u64), &str> = (events.iter().filter(|e| e["name"] == "thread_name"))
            .map(|e| ((e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap()), e["args"]["name"].as_str().unwrap()))
            .collect();
        let named = [
            ((1, 1), "ranges"),
            ((1, 2), "calls of thread 0"),
            ((1, 3), "calls of thread 1"),
            ((2, 1), "stream 0"),
            ((2, 8), "stream 7"),
        ];
        assert_eq!(names, BTreeMap::from(named));
        let slices: BTreeSet<(u64, u64)> = (events.iter().filter(|e| e["ph"] == "X"))
            .map(|e| (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap()))
            .collect();
        assert!(slices.iter().eq(names.keys()), "{slices:?}");
    }

    #[test]
    fn counters_add_up_to_what_was_moved() {
        let events = parsed(&launched());
        let of = |name: &str| events.iter().filter(|e| e["ph"] == "C" && e["name"] == name).collect::<Vec<_>>();
        // 100 µs a stretch: GB/s · 100 µs = 100 KB.
        let moved: f64 = of("bandwidth").iter().map(|e| e["args"]["GB/s"].as_f64().unwrap() * 100e3).sum();
        assert!((moved / (2.0 * 3.0 * 4.0 * 10_000.0) - 1.0).abs() < 0.02, "{moved}");
        assert_eq!(of("memory")[0]["args"]["MB"], 8.0);
        let queue: Vec<f64> = of("queue").iter().map(|e| e["args"]["launches"].as_f64().unwrap()).collect();
        assert!(queue.contains(&1.0) && queue.last() == Some(&0.0), "{queue:?}");
    }

    #[test]
    fn a_hundred_and_twenty_eight_tokens_of_a_large_model_are_less_than_20_mb() {
        // TinyLlama: 22 layers of 15 launches and three more, every one with its call, its range and its shape.
        const LAUNCHES: u64 = 22 * 15 + 3;
        let mut made = Made::default();
        made.timeline.source = "CUPTI".into();
        let names =
            ["rmsnorm_bf16_kernel", "attention_cached_split_kv", "swiglu_packs"].map(|n| made.timeline.texts.number(n));
        let shape = Box::new(crate::device::trace::Shape {
            grid: [1232, 12, 1],
            block: [384, 1, 1],
            registers: 168,
            shared_bytes: 196_608,
        });
        for token in 0..128u64 {
            let from = 1_000_000_000 + token * 2_345_678;
            let run = made.range(Level::Run, "decode", None, from, from + 2_000_000);
            let mut layer = run;
            for at in 0..LAUNCHES {
                let begin = from + at * 6_123;
                if at % 15 == 0 {
                    layer = made.range(Level::Layer, "layer 12", Some(run), begin, begin + 90_000);
                }
                let step = made.step(layer, "attention_cached", at as usize, begin, begin + 5_321);
                let id = (token * LAUNCHES + at) as u32 + 1;
                let call = event(Kind::Call, Track::Host(0), [begin + 111, begin + 4_222], id, Some(step));
                let kernel = event(Kind::Kernel, Track::Stream(13), [begin + 5_333, begin + 11_444], id, Some(step));
                let name = names[at as usize % names.len()];
                made.timeline.events.extend([call, Event { name, shape: Some(shape.clone()), ..kernel }]);
            }
        }
        let text = trace(&made.timeline, &Known::new());
        assert!(text.len() < 20_000_000, "{} bytes", text.len());
        assert_eq!(text.matches("\"flow_in\"").count() as u64, 128 * LAUNCHES);
    }

    /// A run on a GPU with all that CUPTI tells: calls of two threads, one with a wait, a kernel, a graph of three nodes, a
    /// memset and a copy on two streams, memory that is taken and given back.
    fn recorded() -> Made {
        let mut made = launched();
        let run = made.range(Level::Run, "decode", None, 500_000, 900_000);
        let layer = made.range(Level::Layer, "layer 0", Some(run), 501_000, 700_000);
        let step = made.step(layer, "add", 10_000, 502_000, 520_000);
        let mut put = |name: &str, event: Event| {
            let name = made.timeline.texts.number(name);
            made.timeline.events.push(Event { name, ..event });
        };
        put("cuGraphLaunch", event(Kind::Call, Track::Host(0), [503_000, 510_000], 11, Some(step)));
        for node in 1..=3u64 {
            let from = 505_000 + 20_000 * node;
            let ran = event(Kind::Kernel, Track::Stream(7), [from, from + 20_000], 11, Some(step));
            let shape = Some(Box::new(crate::device::trace::Shape { grid: [132, 1, 1], ..Default::default() }));
            put("add_kernel", Event { node, shape, ..ran });
        }
        put("cuMemsetD8Async", event(Kind::Call, Track::Host(0), [600_000, 601_000], 12, Some(layer)));
        put("memset", Event { bytes: 64, ..event(Kind::Set, Track::Stream(0), [602_000, 603_000], 12, Some(layer)) });
        put("cuMemcpyDtoHAsync_v2", event(Kind::Call, Track::Host(1), [604_000, 606_000], 13, Some(run)));
        let copied = event(Kind::Copy, Track::Stream(9), [605_500, 640_000], 13, Some(run));
        put("copy to the host", Event { bytes: 4_096, ..copied });
        put("cuStreamSynchronize", event(Kind::Call, Track::Host(1), [606_000, 650_000], 14, Some(run)));
        put("wait", event(Kind::Wait, Track::Host(1), [606_100, 649_900], 14, Some(run)));
        made.memory(Kind::Allocate, "product", 40_000, 503_000, Some(step));
        made.memory(Kind::Free, "product", 40_000, 640_000, Some(run));
        made
    }

    /// `ci/perfetto.sh` loads the file with Perfetto's trace processor.
    #[test]
    fn the_trace_of_a_gpu_is_the_one_that_perfetto_is_given() {
        let (made, suites) = (recorded(), suites());
        let text = trace(&made.timeline, &known(&made.timeline, &host_knowledge(&suites)));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/traces/gpu.json");
        if std::fs::read_to_string(path).ok().as_deref() != Some(&*text) {
            let now = std::env::temp_dir().join("kernelgate-gpu-trace.json");
            std::fs::write(&now, &text).unwrap();
            panic!(
                "{path} is another one: if the change is right, copy {} there and run ci/perfetto.sh",
                now.display()
            );
        }
    }

    #[test]
    fn names_cannot_break_the_file() {
        let mut made = launched();
        made.range(Level::Run, "a \"quote\"\nand a line \u{1}", None, 0, 1);
        assert!(parsed(&made).iter().any(|e| e["name"] == "a \"quote\"\nand a line \u{1}"));
        assert_eq!([Us(1_000), Us(1_500), Us(1_001), Us(7)].map(|us| us.to_string()), ["1", "1.5", "1.001", "0.007"]);
    }
}
