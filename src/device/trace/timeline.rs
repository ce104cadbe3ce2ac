//! The data of a recording: the same for host spans, a GPU's activity records, and its events.

use crate::core::dtype::DType;
use crate::core::shape::Point;
use std::collections::HashMap;

/// The number of a text in [`Texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub u32);

/// The number of a range in [`Timeline::ranges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RangeId(pub u32);

/// The number of a work in [`Timeline::works`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u32);

/// Names, each stored once.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    all: Vec<String>,
    numbers: HashMap<String, Text>,
}

impl Texts {
    /// The number of a text.
    pub fn number(&mut self, text: &str) -> Text {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let number = Text(self.all.len() as u32);
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// The text of a number.
    pub fn text(&self, number: Text) -> &str {
        self.all.get(number.0 as usize).map_or("", String::as_str)
    }
}

/// What a step computes, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    /// The operator.
    pub operator: String,
    /// The candidate.
    pub candidate: String,
    /// The shape.
    pub point: Point,
    /// The dtype.
    pub dtype: DType,
    /// Bytes that are touched before the same ones are touched again: a cache that holds so many serves them. `None` where
    /// the caches were made cold.
    pub reuse_bytes: Option<usize>,
    /// How often a step does it: more than once where a batch is replayed as one graph.
    pub launches: usize,
}

/// What a range stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// One run of all steps, which repeats: a prefill, a decoded token, a batch of launches.
    Run,
    /// A part of a model.
    Layer,
    /// An operator at a shape.
    Step,
}

/// Something that the host was doing.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// What it stands for.
    pub level: Level,
    /// What it is called.
    pub name: Text,
    /// The range around it.
    pub parent: Option<RangeId>,
    /// What is computed, of a step.
    pub work: Option<WorkId>,
    /// Since the recording began.
    pub start_ns: u64,
    /// Since the recording began.
    pub end_ns: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A kernel, or a host function.
    Kernel,
    /// Memory was copied.
    Copy,
    /// Memory was set.
    Set,
    /// A graph as a whole, where its nodes are not told apart.
    Graph,
    /// Memory was taken.
    Allocate,
    /// Memory was given back.
    Free,
    /// A call into the driver.
    Call,
    /// A call that waits for the device.
    Wait,
}

impl Kind {
    /// Whether it takes a stream's turn on the device.
    pub const fn is_on_device(self) -> bool {
        matches!(self, Kind::Kernel | Kind::Copy | Kind::Set | Kind::Graph)
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Kernel => "kernel",
            Kind::Copy => "copy",
            Kind::Set => "memset",
            Kind::Graph => "graph",
            Kind::Allocate => "allocation",
            Kind::Free => "free",
            Kind::Call => "driver call",
            Kind::Wait => "wait",
        }
    }

    /// Whether the device works meanwhile.
    pub const fn is_work(self) -> bool {
        matches!(self, Kind::Kernel | Kind::Copy | Kind::Set | Kind::Graph)
    }
}

/// Where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// A thread of the host that asks for work.
    Host(u32),
    /// A stream of the device; the host as a device has stream 0.
    Stream(u32),
}

/// How a kernel was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Registers a thread.
    pub registers: u32,
    /// Shared memory of a block, static and dynamic.
    pub shared_bytes: u32,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// What it is called.
    pub name: Text,
    /// Where.
    pub track: Track,
    /// Since the recording began.
    pub start_ns: u64,
    /// Since the recording began.
    pub end_ns: u64,
    /// What links a call to the work that it launched; 0 for nothing.
    pub correlation: u32,
    /// The innermost range that it was launched in.
    pub range: Option<RangeId>,
    /// The node of a graph that it ran as; 0 outside of graphs.
    pub node: u64,
    /// Bytes copied, set, taken or given back.
    pub bytes: u64,
    /// How a kernel was launched.
    pub shape: Option<Box<Shape>>,
}

impl Event {
    /// How long it took.
    pub fn us(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 * 1e-3
    }

    /// As so many events in a row, which take the same.
    pub fn split(self, parts: usize) -> impl Iterator<Item = Event> {
        let parts = parts.max(1) as u64;
        let (start_ns, all_ns) = (self.start_ns, self.end_ns.saturating_sub(self.start_ns));
        let at = move |part: u64| start_ns + (u128::from(all_ns) * u128::from(part) / u128::from(parts)) as u64;
        (0..parts).map(move |part| Event { start_ns: at(part), end_ns: at(part + 1), ..self.clone() })
    }

    /// Whether it is a kernel that is no node of a graph.
    pub fn is_launched_alone(&self) -> bool {
        self.kind == Kind::Kernel && self.node == 0
    }
}

/// A recording.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Names.
    pub texts: Texts,
    /// What steps compute.
    pub works: Vec<Work>,
    /// What the host was doing, in the order in which it began.
    pub ranges: Vec<Range>,
    /// What happened, in no order.
    pub events: Vec<Event>,
    /// From when to when was recorded, between pauses.
    pub repeats: Vec<[u64; 2]>,
    /// Records that a source lost because nobody took them in time.
    pub lost: usize,
    /// Where the events are from.
    pub source: String,
    /// What a reader should know of it.
    pub notes: Vec<String>,
}

impl Timeline {
    /// A range.
    pub fn range(&self, id: RangeId) -> &Range {
        &self.ranges[id.0 as usize]
    }

    /// The range at this level around a range, which may be itself.
    pub fn around(&self, id: RangeId, level: Level) -> Option<RangeId> {
        let mut at = Some(id);
        while let Some(id) = at {
            let range = self.range(id);
            if range.level == level {
                return Some(id);
            }
            at = range.parent;
        }
        None
    }

    /// What is computed by the innermost range around one that says so.
    pub fn work_of(&self, id: RangeId) -> Option<WorkId> {
        let mut at = Some(id);
        while let Some(id) = at {
            let range = self.range(id);
            if range.work.is_some() {
                return range.work;
            }
            at = range.parent;
        }
        None
    }

    /// How many launches a range has of what it computes.
    pub fn launches(&self, id: RangeId) -> usize {
        self.work_of(id).map_or(1, |work| self.works[work.0 as usize].launches)
    }

    /// The ranges of all runs of a name.
    pub fn runs<'t>(&'t self, name: &'t str) -> impl Iterator<Item = RangeId> + 't {
        let all = self.ranges.iter().enumerate();
        all.filter(move |(_, range)| range.level == Level::Run && self.texts.text(range.name) == name)
            .map(|(at, _)| RangeId(at as u32))
    }

    /// The names of the runs, in the order in which they first began.
    pub fn run_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for range in self.ranges.iter().filter(|range| range.level == Level::Run) {
            let name = self.texts.text(range.name);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}
