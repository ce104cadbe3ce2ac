//! The recorder: what threads say of themselves while a recording is under way.

use super::timeline::{Event, Kind, Level, Range, RangeId, Text, Timeline, Track, Work, WorkId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What a device says of itself while its host records.
pub trait Source: Send {
    /// What happens from now on is recorded.
    fn resume(&mut self);

    /// What happens from now on is not.
    fn pause(&mut self);

    /// A range has begun: what is launched from now on by this thread belongs to it.
    fn enter(&mut self, range: RangeId);

    /// The innermost range has ended.
    fn leave(&mut self);

    /// Everything that the device did since `begun`, the time 0 of the timeline, is added to it.
    fn finish(&mut self, begun: Instant, timeline: &mut Timeline);
}

struct State {
    timeline: Timeline,
    begun: Instant,
    /// From the outermost to the innermost, with whether a step was within.
    open: Vec<(RangeId, bool)>,
    works: HashMap<Work, (WorkId, Text)>,
    correlation: u32,
    source: Option<Box<dyn Source>>,
}

impl State {
    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn open(&mut self, level: Level, name: Text, work: Option<WorkId>, start_ns: u64) -> RangeId {
        let id = RangeId(self.timeline.ranges.len() as u32);
        let parent = self.open.last().map(|(id, _)| *id);
        if level == Level::Step {
            self.open.iter_mut().for_each(|(_, has_steps)| *has_steps = true);
        }
        self.timeline.ranges.push(Range { level, name, parent, work, start_ns, end_ns: start_ns });
        self.open.push((id, false));
        if let Some(source) = &mut self.source {
            source.enter(id);
        }
        id
    }

    fn number(&mut self, work: Work) -> (WorkId, Text) {
        if let Some(&known) = self.works.get(&work) {
            return known;
        }
        let id = WorkId(self.timeline.works.len() as u32);
        let name = self.timeline.texts.number(&work.operator);
        self.timeline.works.push(work.clone());
        self.works.insert(work, (id, name));
        (id, name)
    }

    fn memory(&mut self, kind: Kind, name: &str, bytes: usize) {
        let (at, name) = (self.now_ns(), self.timeline.texts.number(name));
        let range = self.open.last().map(|(id, _)| *id);
        self.timeline.events.push(Event {
            kind,
            name,
            track: Track::Host(0),
            start_ns: at,
            end_ns: at,
            correlation: 0,
            range,
            node: 0,
            bytes: bytes as u64,
            shape: None,
        });
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// A recording that is under way, as other threads see it.
#[derive(Clone)]
pub struct Handle(Arc<Mutex<State>>);

impl Handle {
    fn with<R>(&self, run: impl FnOnce(&mut State) -> R) -> R {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records what this thread says while `run` runs.
    pub fn carry<R>(self, run: impl FnOnce() -> R) -> R {
        /// Puts back what was there, also when `run` panics.
        struct Before(Option<Handle>);
        impl Drop for Before {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _before = Before(CURRENT.replace(Some(self)));
        run()
    }
}

/// The recording that this thread takes part in.
pub fn handle() -> Option<Handle> {
    CURRENT.with_borrow(Clone::clone)
}

/// Whether this thread takes part in a recording.
pub fn is_on() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// What a recording of the host alone says of its source.
pub const HOST_SPANS: &str = "host spans";

/// A recording, which may have pauses.
pub struct Recording(Handle);

impl Recording {
    /// One of the host alone.
    pub fn of_host() -> Self {
        Recording::with(None, HOST_SPANS)
    }

    /// One of the host and of a device.
    pub fn with(source: Option<Box<dyn Source>>, name: &str) -> Self {
        let timeline = Timeline { source: name.into(), ..Timeline::default() };
        let (begun, works) = (Instant::now(), HashMap::new());
        let state = State { timeline, begun, open: Vec::new(), works, correlation: 0, source };
        Recording(Handle(Arc::new(Mutex::new(state))))
    }

    /// Records while `run` runs on this thread.
    pub fn during<R>(&self, run: impl FnOnce() -> R) -> R {
        let from = self.0.with(|state| {
            state.source.iter_mut().for_each(|source| source.resume());
            state.now_ns()
        });
        let result = self.0.clone().carry(run);
        self.0.with(|state| {
            let to = state.now_ns();
            state.timeline.repeats.push([from, to]);
            state.source.iter_mut().for_each(|source| source.pause());
        });
        result
    }

    /// Ends it.
    pub fn end(self) -> Timeline {
        self.0.with(|state| {
            let mut timeline = std::mem::take(&mut state.timeline);
            if let Some(mut source) = state.source.take() {
                source.finish(state.begun, &mut timeline);
            }
            timeline
        })
    }
}

/// A range, until it is dropped.
#[must_use = "a range lasts as long as its span"]
pub struct Span(Option<Within>);

struct Within {
    handle: Handle,
    id: RangeId,
    /// Of a step on the host: when its function began.
    host_ns: Option<u64>,
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(Within { handle, id, host_ns }) = self.0.take() else { return };
        handle.with(|state| {
            let end_ns = state.now_ns();
            let Some(has_steps) = state.open.pop().map(|(_, has_steps)| has_steps) else { return };
            if let Some(source) = &mut state.source {
                source.leave();
            }
            let Some(range) = state.timeline.ranges.get_mut(id.0 as usize) else { return };
            range.end_ns = end_ns;
            // A step made of steps is told by these.
            let Some(start_ns) = host_ns.filter(|_| !has_steps) else { return };
            let name = range.name;
            state.correlation += 1;
            state.timeline.events.push(Event {
                kind: Kind::Kernel,
                name,
                track: Track::Stream(0),
                start_ns,
                end_ns,
                correlation: state.correlation,
                range: Some(id),
                node: 0,
                bytes: 0,
                shape: None,
            });
        });
    }
}

fn named(level: Level, name: &str) -> Span {
    Span(handle().map(|handle| {
        let id = handle.with(|state| {
            let (start, name) = (state.now_ns(), state.timeline.texts.number(name));
            state.open(level, name, None, start)
        });
        Within { handle, id, host_ns: None }
    }))
}

/// A run of all steps.
pub fn run(name: &str) -> Span {
    named(Level::Run, name)
}

/// A step: on the host it is an event of its own; what a device launches meanwhile is an event of that device.
pub fn step(on_host: bool, work: impl FnOnce() -> Work) -> Span {
    Span(handle().map(|handle| {
        let (id, host_ns) = handle.with(|state| {
            let start = state.now_ns();
            let (work, name) = state.number(work());
            let id = state.open(Level::Step, name, Some(work), start);
            (id, on_host.then(|| state.now_ns()))
        });
        Within { handle, id, host_ns }
    }))
}

/// Memory was taken.
pub fn held(name: &str, bytes: usize) {
    if let Some(handle) = handle() {
        handle.with(|state| state.memory(Kind::Allocate, name, bytes));
    }
}

/// Memory was given back.
pub fn freed(name: &str, bytes: usize) {
    if let Some(handle) = handle() {
        handle.with(|state| state.memory(Kind::Free, name, bytes));
    }
}

/// The layers that steps in a row belong to: neighbours of one name share a range.
#[derive(Default)]
pub struct Layers(Option<(String, Span)>);

impl Layers {
    /// The next step belongs to the layer of this name.
    pub fn at(&mut self, name: &str) {
        if !is_on() || self.0.as_ref().is_some_and(|(open, _)| open == name) {
            return;
        }
        // The one before ends first.
        self.0 = None;
        self.0 = Some((name.to_owned(), named(Level::Layer, name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;

    fn work(operator: &str, n: usize) -> Work {
        Work {
            operator: operator.into(),
            candidate: "c".into(),
            point: vec![n],
            dtype: DType::F32,
            reuse_bytes: None,
            launches: 1,
        }
    }

    /// Two runs of two layers of a step each; the second step is made of two.
    fn recorded() -> Timeline {
        let recording = Recording::of_host();
        for _ in 0..2 {
            recording.during(|| {
                let _run = run("token");
                let mut layers = Layers::default();
                layers.at("layer 0");
                drop(step(true, || work("add", 1)));
                drop(step(true, || work("add", 1)));
                layers.at("layer 1");
                let outer = step(true, || work("chain", 2));
                let mut inner = Layers::default();
                inner.at("projection");
                drop(step(true, || work("gemm", 3)));
                inner.at("softmax");
                drop(step(true, || work("softmax", 4)));
                drop((inner, outer));
                held("x", 8);
                freed("x", 8);
            });
            drop(step(true, || panic!("a pause")));
        }
        recording.end()
    }

    #[test]
    fn steps_know_their_layer_and_their_run() {
        let timeline = recorded();
        assert_eq!(timeline.run_names(), ["token"]);
        assert_eq!(timeline.runs("token").count(), 2);
        for (id, [from, to]) in timeline.runs("token").zip(&timeline.repeats) {
            assert!(*from <= timeline.range(id).start_ns && timeline.range(id).end_ns <= *to, "a run a repeat");
        }
        let kernels: Vec<_> = timeline.events.iter().filter(|event| event.kind == Kind::Kernel).collect();
        let names: Vec<_> = kernels.iter().map(|event| timeline.texts.text(event.name)).collect();
        assert_eq!(names, ["add", "add", "gemm", "softmax"].repeat(2), "a step made of steps is no event");
        assert_eq!(timeline.works.len(), 4, "equal works have one number");
        let layer = |event: &Event| {
            let id = timeline.around(event.range.unwrap(), Level::Layer).unwrap();
            timeline.texts.text(timeline.range(id).name)
        };
        assert_eq!(
            kernels[..4].iter().map(|event| layer(event)).collect::<Vec<_>>(),
            ["layer 0", "layer 0", "projection", "softmax"]
        );
        for event in &kernels {
            let run = timeline.range(timeline.around(event.range.unwrap(), Level::Run).unwrap());
            assert!(run.start_ns <= event.start_ns && event.start_ns <= event.end_ns && event.end_ns <= run.end_ns);
        }
        let memory: Vec<_> = timeline.events.iter().filter(|e| e.bytes == 8).map(|e| e.kind).collect();
        assert_eq!(memory, [Kind::Allocate, Kind::Free].repeat(2));
    }

    #[test]
    fn nothing_is_recorded_outside_of_a_recording_nor_from_other_threads() {
        drop(step(true, || panic!("nobody asks what it is")));
        let recording = Recording::of_host();
        recording.during(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| drop(step(true, || work("alone", 1))));
                let here = handle().unwrap();
                scope.spawn(move || here.carry(|| drop(step(true, || work("carried", 1)))));
            });
        });
        let timeline = recording.end();
        assert_eq!(timeline.works.iter().map(|work| work.operator.as_str()).collect::<Vec<_>>(), ["carried"]);
        assert!(handle().is_none());
    }

    /// A device that launches one kernel a range, and says so at the end.
    struct Echo(Vec<RangeId>, usize);

    impl Source for Echo {
        fn resume(&mut self) {}

        fn pause(&mut self) {
            assert_eq!(self.0.len(), self.1, "a range is open");
        }

        fn enter(&mut self, range: RangeId) {
            self.0.push(range);
        }

        fn leave(&mut self) {
            self.1 += 1;
        }

        fn finish(&mut self, _: Instant, timeline: &mut Timeline) {
            assert_eq!(self.0.len(), self.1);
            let name = timeline.texts.number("kernel");
            timeline.events.extend(self.0.iter().map(|&id| Event {
                kind: Kind::Kernel,
                name,
                track: Track::Stream(7),
                start_ns: 1,
                end_ns: 2,
                correlation: 1,
                range: Some(id),
                node: 0,
                bytes: 0,
                shape: None,
            }));
        }
    }

    #[test]
    fn a_source_is_told_the_ranges_and_adds_its_events() {
        let recording = Recording::with(Some(Box::new(Echo(Vec::new(), 0))), "echo");
        recording.during(|| {
            let _run = run("r");
            drop(step(false, || work("add", 1)));
        });
        let timeline = recording.end();
        assert_eq!((timeline.events.len(), timeline.source.as_str()), (2, "echo"));
        assert_eq!(timeline.work_of(timeline.events[1].range.unwrap()), Some(WorkId(0)));
    }
}
