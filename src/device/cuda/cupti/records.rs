//! Activity records, read from their bytes: events of a timeline, and what links them to its ranges.

use super::layout::{Field, api, external, graph, kernel, kinds, memcpy, memory, memset, synchronization};
use crate::device::trace::{Event, Kind, RangeId, Shape, Timeline, Track};
use std::collections::HashMap;

/// What a record says; times are those of CUPTI's clock.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Something that ran, or was called.
    Event {
        /// What, with texts still to be filled in.
        kind: Kind,
        /// Its name.
        name: Name,
        /// The stream, or the thread of a call as the system numbers it; of a wait its call knows that.
        place: Track,
        /// When it began.
        start_ns: u64,
        /// When it ended.
        end_ns: u64,
        /// What it is linked by.
        correlation: u32,
        /// Its node in a graph.
        node: u64,
        /// Bytes that it moved.
        bytes: u64,
        /// How it was launched.
        shape: Option<Shape>,
    },
    /// A call with this correlation id was made within a range of the program.
    Link {
        /// Of the call.
        correlation: u32,
        /// What the program pushed.
        external: u64,
    },
}

/// Where a name is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// At an address of this process.
    Address(u64),
    /// Of a driver function, by its number.
    Call(u32),
    /// A word.
    Word(&'static str),
}

/// Reads a record from its first byte on; `None` of a kind that was not asked for, or where bytes are missing.
pub fn read(bytes: &[u8]) -> Option<Record> {
    let kind = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let get = |field: Field| field.of(bytes);
    let short = |field: Field| field.of(bytes).map(|value| value as u32);
    let stream = |field: Field| short(field).map(Track::Stream);
    match kind {
        kinds::CONCURRENT_KERNEL => Some(Record::Event {
            kind: Kind::Kernel,
            name: Name::Address(get(kernel::NAME)?),
            place: stream(kernel::STREAM)?,
            start_ns: get(kernel::START)?,
            end_ns: get(kernel::END)?,
            correlation: short(kernel::CORRELATION)?,
            node: get(kernel::NODE)?,
            bytes: 0,
            shape: Some(Shape {
                grid: [short(kernel::GRID_X)?, short(kernel::GRID_Y)?, short(kernel::GRID_Z)?],
                block: [short(kernel::BLOCK_X)?, short(kernel::BLOCK_Y)?, short(kernel::BLOCK_Z)?],
                registers: short(kernel::REGISTERS)?,
                shared_bytes: short(kernel::STATIC_SHARED)?.saturating_add(short(kernel::DYNAMIC_SHARED)?),
            }),
        }),
        kinds::MEMCPY => Some(Record::Event {
            kind: Kind::Copy,
            name: Name::Word(direction(short(memcpy::COPY_KIND)?)),
            place: stream(memcpy::STREAM)?,
            start_ns: get(memcpy::START)?,
            end_ns: get(memcpy::END)?,
            correlation: short(memcpy::CORRELATION)?,
            node: get(memcpy::NODE)?,
            bytes: get(memcpy::BYTES)?,
            shape: None,
        }),
        kinds::MEMSET => Some(Record::Event {
            kind: Kind::Set,
            name: Name::Word("memset"),
            place: stream(memset::STREAM)?,
            start_ns: get(memset::START)?,
            end_ns: get(memset::END)?,
            correlation: short(memset::CORRELATION)?,
            node: get(memset::NODE)?,
            bytes: get(memset::BYTES)?,
            shape: None,
        }),
        kinds::GRAPH_TRACE => Some(Record::Event {
            kind: Kind::Graph,
            name: Name::Word("graph"),
            place: stream(graph::STREAM)?,
            start_ns: get(graph::START)?,
            end_ns: get(graph::END)?,
            correlation: short(graph::CORRELATION)?,
            node: 0,
            bytes: 0,
            shape: None,
        }),
        kinds::DRIVER => Some(Record::Event {
            kind: Kind::Call,
            name: Name::Call(short(api::CALLBACK)?),
            place: Track::Host(short(api::THREAD)?),
            start_ns: get(api::START)?,
            end_ns: get(api::END)?,
            correlation: short(api::CORRELATION)?,
            node: 0,
            bytes: 0,
            shape: None,
        }),
        kinds::SYNCHRONIZATION => Some(Record::Event {
            kind: Kind::Wait,
            name: Name::Word("wait"),
            place: Track::Host(0),
            start_ns: get(synchronization::START)?,
            end_ns: get(synchronization::END)?,
            correlation: short(synchronization::CORRELATION)?,
            node: 0,
            bytes: 0,
            shape: None,
        }),
        kinds::MEMORY2 => {
            let at = get(memory::TIMESTAMP)?;
            // 1 takes, 2 gives back.
            let kind = if short(memory::OPERATION)? == 1 { Kind::Allocate } else { Kind::Free };
            Some(Record::Event {
                kind,
                name: Name::Word("device memory"),
                place: Track::Host(0),
                start_ns: at,
                end_ns: at,
                correlation: short(memory::CORRELATION)?,
                node: 0,
                bytes: get(memory::BYTES)?,
                shape: None,
            })
        }
        kinds::EXTERNAL_CORRELATION => {
            Some(Record::Link { correlation: short(external::CORRELATION)?, external: get(external::EXTERNAL)? })
        }
        _ => None,
    }
}

fn direction(kind: u32) -> &'static str {
    match kind {
        1 => "copy to the device",
        2 => "copy to the host",
        8 => "copy on the device",
        _ => "copy",
    }
}

/// What a range is pushed as: 0 stands for none.
pub const fn external_of(range: RangeId) -> u64 {
    range.0 as u64 + 1
}

/// Adds records to a timeline: `name` tells names, `offset_ns` is CUPTI's time at the time 0 of the timeline. What a call
/// launched belongs to the range that the call was made in; records from before the recording are left out. Threads are
/// numbered in the order in which they first call.
pub fn add(records: Vec<Record>, timeline: &mut Timeline, offset_ns: u64, name: impl Fn(Name) -> String) {
    let mut ranges: HashMap<u32, RangeId> = HashMap::new();
    for record in &records {
        if let Record::Link { correlation, external } = record
            && let Some(range) = external.checked_sub(1).filter(|at| (*at as usize) < timeline.ranges.len())
        {
            ranges.insert(*correlation, RangeId(range as u32));
        }
    }
    let mut threads = Threads::default();
    for record in &records {
        if let Record::Event { kind: Kind::Call, place: Track::Host(system), start_ns, correlation, .. } = record
            && *start_ns >= offset_ns
        {
            threads.calls(*system, *correlation);
        }
    }
    for record in records {
        let Record::Event { kind, name: of, place, start_ns, end_ns, correlation, node, bytes, shape } = record else {
            continue;
        };
        // A kernel that never ran, or one whose time the device did not take, has no time.
        let Some(start_ns) = start_ns.checked_sub(offset_ns).filter(|_| end_ns >= start_ns) else { continue };
        let end_ns = end_ns - offset_ns;
        let name = timeline.texts.number(&name(of));
        let range = ranges.get(&correlation).copied();
        let shape = shape.map(Box::new);
        let track = match place {
            Track::Host(_) => Track::Host(threads.of(correlation)),
            stream @ Track::Stream(_) => stream,
        };
        timeline.events.push(Event { kind, name, track, start_ns, end_ns, correlation, range, node, bytes, shape });
    }
    queue_up(&mut timeline.events);
}

/// Threads that call the driver.
#[derive(Default)]
struct Threads {
    numbers: HashMap<u32, u32>,
    by_call: HashMap<u32, u32>,
}

impl Threads {
    /// A thread, as the system numbers it, made a call.
    fn calls(&mut self, system: u32, correlation: u32) {
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(system).or_insert(next);
        self.by_call.insert(correlation, number);
    }

    /// The thread that made a call.
    fn of(&self, correlation: u32) -> u32 {
        self.by_call.get(&correlation).copied().unwrap_or_default()
    }
}

/// What a stream does begins when what it did before has ended: a node of a graph may be told to start with the graph, and a
/// dependent launch waits for the one ahead. The time in which both are there belongs to the one ahead.
fn queue_up(events: &mut [Event]) {
    let mut on_device: Vec<&mut Event> = events.iter_mut().filter(|event| event.kind.is_on_device()).collect();
    on_device.sort_by_key(|event| (event.end_ns, event.start_ns));
    let mut ended: HashMap<Track, u64> = HashMap::new();
    for event in on_device {
        let last = ended.entry(event.track).or_default();
        event.start_ns = event.start_ns.max(*last).min(event.end_ns);
        *last = event.end_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::trace::{Level, Range};

    /// A record of these bytes with some fields set.
    fn record(kind: u32, size: usize, fields: &[(Field, u64)]) -> Vec<u8> {
        let mut bytes = vec![0xAB; size];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        for (field, value) in fields {
            bytes[field.offset..field.offset + field.size].copy_from_slice(&value.to_le_bytes()[..field.size]);
        }
        bytes
    }

    fn launched(correlation: u64, start: u64, end: u64, node: u64) -> Vec<u8> {
        let fields = [
            (kernel::REGISTERS, 72),
            (kernel::START, start),
            (kernel::END, end),
            (kernel::STREAM, 13),
            (kernel::GRID_X, 132),
            (kernel::GRID_Y, 2),
            (kernel::GRID_Z, 1),
            (kernel::BLOCK_X, 384),
            (kernel::BLOCK_Y, 1),
            (kernel::BLOCK_Z, 1),
            (kernel::STATIC_SHARED, 1024),
            (kernel::DYNAMIC_SHARED, 65_536),
            (kernel::CORRELATION, correlation),
            (kernel::NAME, 0x7f00_dead_beef),
            (kernel::NODE, node),
        ];
        record(kinds::CONCURRENT_KERNEL, 208, &fields)
    }

    fn linked(correlation: u64, external: u64) -> Vec<u8> {
        record(kinds::EXTERNAL_CORRELATION, 24, &[(external::EXTERNAL, external), (external::CORRELATION, correlation)])
    }

    #[test]
    fn a_kernel_is_read_with_everything_around_it_garbage() {
        let Some(Record::Event { kind, name, place, start_ns, end_ns, correlation, node, shape, .. }) =
            read(&launched(77, 5_000, 9_000, 3))
        else {
            panic!("a kernel")
        };
        assert_eq!((kind, name, place), (Kind::Kernel, Name::Address(0x7f00_dead_beef), Track::Stream(13)));
        assert_eq!((start_ns, end_ns, correlation, node), (5_000, 9_000, 77, 3));
        let expected = Shape { grid: [132, 2, 1], block: [384, 1, 1], registers: 72, shared_bytes: 66_560 };
        assert_eq!(shape, Some(expected));
    }

    #[test]
    fn nodes_that_start_with_their_graph_follow_each_other() {
        let bytes =
            [linked(5, 1), launched(5, 1_000, 1_200, 9), launched(5, 1_000, 1_100, 8), launched(5, 1_250, 1_300, 10)];
        let (mut timeline, records) = (Timeline::default(), bytes.iter().filter_map(|bytes| read(bytes)).collect());
        add(records, &mut timeline, 1_000, |_| "kernel".into());
        let seen: Vec<_> = timeline.events.iter().map(|e| (e.node, e.start_ns, e.end_ns)).collect();
        assert_eq!(seen, [(9, 100, 200), (8, 0, 100), (10, 250, 300)]);
    }

    #[test]
    fn calls_and_waits_are_on_the_thread_that_made_them() {
        let called = |thread, correlation, start| {
            let fields = [
                (api::CALLBACK, 307),
                (api::START, start),
                (api::END, start + 10),
                (api::THREAD, thread),
                (api::CORRELATION, correlation),
            ];
            record(kinds::DRIVER, 40, &fields)
        };
        let waited = record(
            kinds::SYNCHRONIZATION,
            56,
            &[(synchronization::START, 2_002), (synchronization::END, 2_008), (synchronization::CORRELATION, 3)],
        );
        let bytes = [
            called(4_000_000_000, 1, 500),
            called(71, 2, 1_500),
            called(4_242, 3, 2_000),
            waited,
            called(71, 4, 3_000),
        ];
        let (mut timeline, records) = (Timeline::default(), bytes.iter().filter_map(|bytes| read(bytes)).collect());
        add(records, &mut timeline, 1_000, |_| "call".into());
        let seen: Vec<_> = timeline.events.iter().map(|e| (e.kind, e.start_ns, e.track)).collect();
        let [first, second] = [0, 1].map(Track::Host);
        assert_eq!(
            seen,
            [
                (Kind::Call, 500, first),
                (Kind::Call, 1_000, second),
                (Kind::Wait, 1_002, second),
                (Kind::Call, 2_000, first),
            ]
        );
    }

    #[test]
    fn short_and_unknown_records_are_nothing() {
        let whole = launched(1, 2, 3, 0);
        assert!((0..152).all(|len| read(&whole[..len]).is_none()) && read(&whole[..152]).is_some());
        assert_eq!(read(&record(9, 200, &[])), None);
    }

    #[test]
    fn what_a_call_launched_belongs_to_the_range_of_the_call() {
        let mut timeline = Timeline::default();
        for name in ["run", "step"] {
            let name = timeline.texts.number(name);
            let parent = timeline.ranges.is_empty().then_some(RangeId(0)).xor(Some(RangeId(0)));
            timeline.ranges.push(Range { level: Level::Run, name, parent, work: None, start_ns: 0, end_ns: 9 });
        }
        let copied = record(
            kinds::MEMCPY,
            96,
            &[
                (memcpy::COPY_KIND, 2),
                (memcpy::BYTES, 4096),
                (memcpy::START, 1_500),
                (memcpy::END, 1_600),
                (memcpy::STREAM, 7),
                (memcpy::CORRELATION, 6),
                (memcpy::NODE, 0),
            ],
        );
        let called = record(
            kinds::DRIVER,
            40,
            &[(api::CALLBACK, 307), (api::START, 1_050), (api::END, 1_060), (api::CORRELATION, 5)],
        );
        // Two nodes of one graph have the correlation of its launch; the first kernel is from before the recording, the link
        // of the copy to a range that is not there.
        let bytes = [
            launched(4, 900, 950, 0),
            linked(5, external_of(RangeId(1))),
            called,
            launched(5, 1_100, 1_200, 8),
            launched(5, 1_200, 1_300, 9),
            copied,
            linked(6, 99),
        ];
        let records = bytes.iter().filter_map(|bytes| read(bytes)).collect();
        add(records, &mut timeline, 1_000, |name| match name {
            Name::Address(_) => "softmax_f32".into(),
            Name::Call(number) => format!("call {number}"),
            Name::Word(word) => word.into(),
        });
        let seen: Vec<_> = timeline
            .events
            .iter()
            .map(|e| (timeline.texts.text(e.name), e.kind, e.start_ns, e.range, e.node, e.bytes))
            .collect();
        let step = Some(RangeId(1));
        assert_eq!(
            seen,
            [
                ("call 307", Kind::Call, 50, step, 0, 0),
                ("softmax_f32", Kind::Kernel, 100, step, 8, 0),
                ("softmax_f32", Kind::Kernel, 200, step, 9, 0),
                ("copy to the host", Kind::Copy, 500, None, 0, 4096),
            ]
        );
    }
}
