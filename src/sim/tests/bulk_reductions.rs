//! Reductions by tensor map: values of each operation at the edges of a tensor, and what the checks find.

use crate::sim::error::Error;
use crate::sim::machine::memory::Memory;
use crate::sim::machine::tensor_map::{Element, Im2col, Swizzle, TensorMap};
use crate::sim::options::{Completion, Options};
use crate::sim::report::{Check, Finding};
use crate::sim::run::launch;
use crate::sim::tests::run;
use crate::sim::{Arg, Launch, Module};
use rstest::rstest;

/// One reduction of a box: how the tensor looks, where the box goes, and what stands around it in the kernel.
#[derive(Clone)]
struct Case {
    map: TensorMap,
    /// Behind `tensor.`, up to the name of the operation.
    operation: &'static str,
    /// Innermost first.
    coordinates: Vec<i32>,
    /// Content of the tensor with the gaps between its rows, and of the box.
    start: Vec<u8>,
    source: Vec<u8>,
    fence: &'static str,
    /// Behind the reduction, by its thread.
    end: &'static str,
    /// What every thread of a block does before it.
    before: &'static str,
    blocks: u32,
}

const FENCE: &str = "fence.proxy.async.shared::cta;";
const WAIT: &str = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";

impl Case {
    /// Rows follow each other as closely as 16 bytes allow.
    fn new(element: Element, operation: &'static str, extents: &[u64], box_extents: &[u32]) -> Self {
        let bytes = u64::from(element.bytes());
        let mut strides = vec![(extents[0] * bytes).next_multiple_of(16)];
        for extent in &extents[1..] {
            strides.push(strides[strides.len() - 1] * extent);
        }
        let all = strides.pop().unwrap() as usize;
        let count = box_extents.iter().product::<u32>() as usize * bytes as usize;
        Case {
            map: TensorMap {
                base: crate::sim::machine::memory::Pointer::NULL,
                element,
                extents: extents.to_vec(),
                strides_bytes: strides,
                box_extents: box_extents.to_vec(),
                swizzle: Swizzle::None,
                im2col: None,
            },
            operation,
            coordinates: vec![0; extents.len()],
            start: vec![0; all],
            source: vec![0; count],
            fence: FENCE,
            end: WAIT,
            before: "",
            blocks: 1,
        }
    }

    fn text(&self) -> String {
        let rank = self.coordinates.len();
        let at: Vec<String> = self.coordinates.iter().map(i32::to_string).collect();
        format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 m[128], .param .u64 from, .param .u64 to) {{\n\
             .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<5>; .reg .f32 %f<5>; .shared .align 128 .b8 tile[1024];\n\
             mov.b64 %rd1, m; cvta.param.u64 %rd2, %rd1; ld.param.u64 %rd3, [from]; ld.param.u64 %rd9, [to]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r9, %ctaid.x;\n\
             shl.b32 %r3, %r1, 2; L: setp.ge.u32 %p1, %r3, {}; @%p1 bra S; cvt.u64.u32 %rd4, %r3; add.s64 %rd5, %rd3, %rd4; add.u32 %r4, %r2, %r3;\n\
             ld.global.u32 %r5, [%rd5]; st.shared.u32 [%r4], %r5; add.u32 %r3, %r3, 128; bra L;\n\
             S: {}\n{}\nbar.sync 0; setp.ne.u32 %p2, %r1, 0; @%p2 ret;\n\
             cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{}.bulk_group [%rd2, {{{}}}], [%r2];\n{}\nret; }}",
            self.source.len(),
            self.before,
            self.fence,
            self.operation,
            at.join(", "),
            self.end,
        )
    }

    /// What the tensor holds behind it, and the findings.
    fn run(&self, completion: Completion) -> (Vec<u8>, Vec<Finding>) {
        let module = Module::parse(&self.text()).unwrap();
        let mut memory = Memory::new();
        let source = memory.alloc(self.source.len() as u64, Some(&self.source)).unwrap();
        let tensor = memory.alloc(self.start.len() as u64, Some(&self.start)).unwrap();
        let map = TensorMap { base: tensor, ..self.map.clone() };
        let call = Launch::new("k", self.blocks, 32).arg(Arg::bytes(&map.to_bytes().unwrap())).arg(source).arg(tensor);
        let report = launch(&module, &call, &mut memory, &Options { completion, ..Options::default() }).unwrap();
        let mut out = vec![0; self.start.len()];
        memory.read(tensor, &mut out).unwrap();
        (out, report.findings)
    }

    fn checks(&self, completion: Completion) -> Vec<Check> {
        let mut checks: Vec<Check> = self.run(completion).1.iter().map(|finding| finding.check).collect();
        checks.dedup();
        checks
    }
}

fn put(bytes: &mut [u8], at: usize, value: u64, width: usize) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

const HUGE: u64 = 1 << 40;

/// Even columns hold the first pair, odd ones the second.
#[rstest]
#[case(Element::U32, "add.tile", [(5, 7, 12), (0xFFFF_FFFF, 2, 1)])]
#[case(Element::S32, "add", [(5, 0xFFFF_FFF0, 0xFFFF_FFF5), (1, 1, 2)])]
#[case(Element::U32, "min.tile", [(5, 7, 5), (0xFFFF_FFFF, 2, 2)])]
#[case(Element::S32, "min.tile", [(5, 7, 5), (0xFFFF_FFFF, 2, 0xFFFF_FFFF)])]
#[case(Element::U32, "max.tile", [(5, 7, 7), (0xFFFF_FFFF, 2, 0xFFFF_FFFF)])]
#[case(Element::S32, "max.tile", [(5, 7, 7), (0xFFFF_FFFF, 2, 2)])]
#[case(Element::U32, "inc.tile", [(5, 7, 6), (9, 9, 0)])]
#[case(Element::U32, "dec.tile", [(5, 7, 4), (0, 9, 9)])]
#[case(Element::U32, "and.tile", [(12, 10, 8), (3, 1, 1)])]
#[case(Element::S32, "or.tile", [(12, 10, 14), (3, 1, 3)])]
#[case(Element::U64, "xor.tile", [(HUGE + 12, 10, HUGE + 6), (3, HUGE, HUGE + 3)])]
#[case(Element::U64, "add.tile", [(HUGE - 1, 1, HUGE), (0xFFFF_FFFF, 1, 1 << 32)])]
#[case(Element::S64, "max.tile", [(u64::MAX, 1, 1), (HUGE, 2, HUGE)])]
#[case(Element::U64, "max.tile", [(u64::MAX, 1, u64::MAX), (HUGE, 2, HUGE)])]
#[case(Element::S64, "min.tile", [(u64::MAX, 1, u64::MAX), (HUGE, 2, 2)])]
#[case::halves(Element::F16, "add.tile", [(0x3C00, 0x4000, 0x4200), (0x7BFF, 0x7BFF, 0x7C00)])]
#[case::halves(Element::F16, "max.tile", [(0x3C00, 0x4000, 0x4000), (0xBC00, 0xC000, 0xBC00)])]
#[case::bfloats(Element::Bf16, "add.tile", [(0x3F80, 0x4000, 0x4040), (0x4300, 0x3F00, 0x4300)])]
#[case::bfloats(Element::Bf16, "min.tile", [(0x3F80, 0x4000, 0x3F80), (0xBF80, 0xC000, 0xC000)])]
#[case::singles(Element::F32, "add.tile", [(0x3F80_0000, 0x4000_0000, 0x4040_0000), (0, 0xBF80_0000, 0xBF80_0000)])]
#[case::doubles(Element::F64, "add.tile", [(0x3FF0_0000_0000_0000, 0x3FF0_0000_0000_0000, 0x4000_0000_0000_0000), (0, 1, 1)])]
fn elements_are_joined_and_the_others_left_alone(
    #[case] element: Element,
    #[case] operation: &'static str,
    #[case] pairs: [(u64, u64, u64); 2],
    #[values((0, 0), (16, 3), (-8, -2))] (x, y): (i32, i32),
    #[values(Completion::Early, Completion::Late)] completion: Completion,
) {
    // 19 columns: the last 16 bytes of a row are half inside.
    let mut case = Case::new(element, operation, &[19, 5], &[8, 4]);
    case.coordinates = vec![x, y];
    let width = element.bytes() as usize;
    let pitch = case.map.strides_bytes[0] as usize;
    case.start.fill(0xEE);
    for (row, column) in (0..5).flat_map(|row| (0..19).map(move |column| (row, column))) {
        put(&mut case.start, row * pitch + column * width, pairs[column % 2].0, width);
    }
    for at in 0..32 {
        put(&mut case.source, at * width, pairs[at % 2].1, width);
    }
    let mut expected = case.start.clone();
    for (row, column) in (0..5).flat_map(|row| (0..19).map(move |column| (row, column))) {
        if (x..x + 8).contains(&(column as i32)) && (y..y + 4).contains(&(row as i32)) {
            put(&mut expected, row * pitch + column * width, pairs[column % 2].2, width);
        }
    }
    let (found, findings) = case.run(completion);
    assert_eq!(findings, []);
    assert_eq!(found, expected);
}

#[rstest]
fn boxes_have_one_to_five_dimensions(#[values(1, 2, 3, 4, 5)] rank: usize) {
    const EXTENTS: [u64; 5] = [6, 3, 3, 2, 2];
    const BOX: [u32; 5] = [4, 2, 2, 2, 2];
    const START: [i32; 5] = [4, 2, -1, 1, -1];
    let mut case = Case::new(Element::U32, "add.tile", &EXTENTS[..rank], &BOX[..rank]);
    case.coordinates = START[..rank].to_vec();
    (0..case.start.len() / 4).for_each(|at| put(&mut case.start, 4 * at, 1000, 4));
    let mut expected = case.start.clone();
    for at in 0..case.source.len() / 4 {
        put(&mut case.source, 4 * at, at as u64 + 1, 4);
        let (mut rest, mut place, mut inside) = (at, 0, true);
        for dimension in 0..rank {
            let of_tensor = (rest % BOX[dimension] as usize) as i64 + i64::from(START[dimension]);
            rest /= BOX[dimension] as usize;
            inside &= (0..EXTENTS[dimension] as i64).contains(&of_tensor);
            let stride = if dimension == 0 { 4 } else { case.map.strides_bytes[dimension - 1] as i64 };
            place += of_tensor * stride;
        }
        if inside {
            put(&mut expected, place as usize, 1001 + at as u64, 4);
        }
    }
    assert_ne!(expected, case.start);
    let (found, findings) = case.run(Completion::Late);
    assert_eq!(findings, []);
    assert_eq!(found, expected);
}

#[test]
fn a_swizzled_box_is_read_as_it_lies() {
    let mut case = Case::new(Element::U32, "add.tile", &[8, 8], &[8, 8]);
    case.map.swizzle = Swizzle::Bytes32;
    for at in 0..64 {
        put(&mut case.source, Swizzle::Bytes32.apply(4 * at as u64) as usize, at as u64, 4);
        put(&mut case.start, 4 * at, 100, 4);
    }
    let words: Vec<u32> =
        case.run(Completion::Early).0.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, (100..164).collect::<Vec<u32>>());
}

fn sum() -> Case {
    let mut case = Case::new(Element::F32, "add.tile", &[8, 4], &[8, 4]);
    (0..32).for_each(|at| put(&mut case.source, 4 * at, u64::from(1f32.to_bits()), 4));
    case
}

#[rstest]
#[case::no_fence(Case { fence: "", ..sum() }, "fence.proxy.async")]
#[case::nobody_waits(Case { end: "cp.async.bulk.commit_group;", ..sum() }, "wait_group 0")]
#[case::waits_for_another_group(Case { end: "cp.async.bulk.commit_group; cp.async.bulk.wait_group 1;", ..sum() }, "wait_group 0")]
#[case::not_committed(Case { end: "cp.async.bulk.wait_group 0;", ..sum() }, "commit_group")]
#[case::source_overwritten(Case { end: "cp.async.bulk.commit_group; st.shared.u32 [%r2], 0; cp.async.bulk.wait_group.read 0;", ..sum() }, "")]
fn a_source_in_flight_is_watched(
    #[case] case: Case,
    #[case] part: &str,
    #[values(Completion::Early, Completion::Late)] completion: Completion,
) {
    let (_, findings) = case.run(completion);
    let found: Vec<Check> = findings.iter().map(|finding| finding.check).collect();
    assert_eq!(found, [Check::AsyncCopy]);
    assert!(findings[0].message.contains(part), "{}", findings[0]);
    let mended = Case {
        fence: FENCE,
        end: "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; st.shared.u32 [%r2], 0;",
        ..case
    };
    assert_eq!(mended.checks(completion), []);
}

#[test]
fn boxes_that_do_not_fit_are_found() {
    let cases = [
        (Case { coordinates: vec![1, 0], ..sum() }, Check::Misaligned),
        (Case { start: vec![0; 96], ..sum() }, Check::OutOfBounds),
        // The source moves 16 bytes up, then to the last 64 bytes of shared memory.
        (Case { before: "add.u32 %r2, %r2, 16;", ..sum() }, Check::OutOfBounds),
        (Case { before: "add.u32 %r2, %r2, 960;", ..sum() }, Check::OutOfBounds),
        (Case { coordinates: vec![0], ..sum() }, Check::Trap),
        (Case { before: "mov.u64 %rd2, %rd3;", ..sum() }, Check::Trap),
    ];
    for (at, (case, check)) in cases.into_iter().enumerate() {
        for completion in [Completion::Early, Completion::Late] {
            assert_eq!(case.checks(completion), [check], "case {at}");
        }
    }
}

#[rstest]
#[case(
    Element::F32,
    "max.tile",
    "a reduction by `max` into a tensor of .f32 elements; these take add: use one of them"
)]
#[case(Element::F64, "and.tile", "these take add: use one of them")]
#[case(Element::Bf16, "inc.tile", "these take add, min, max: use one of them")]
#[case(Element::S32, "dec.tile", "these take add, min, max, and, or, xor: use one of them")]
#[case(Element::U64, "inc.tile", "these take add, min, max, and, or, xor: use one of them")]
#[case(Element::U16, "add.tile", "no reduction takes these: encode the tensor map with another type")]
#[case(Element::U8, "or.tile", "no reduction takes these: encode the tensor map with another type")]
fn operations_that_elements_do_not_have_are_told(
    #[case] element: Element,
    #[case] operation: &'static str,
    #[case] part: &str,
) {
    let case = Case::new(element, operation, &[16, 4], &[16, 2]);
    let (found, findings) = case.run(Completion::Early);
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert!(finding.check == Check::Trap && finding.message.contains(part), "{finding}");
    assert_eq!(found, case.start);
}

#[test]
fn a_map_that_walks_is_no_map_for_tiles() {
    let mut case = Case::new(Element::F32, "add.tile", &[4, 5, 4, 2], &[4, 1, 1, 4]);
    case.map.im2col = Some(Im2col { lower_corner: [0, 0], upper_corner: [0, 0], stride: [1, 1] });
    assert_eq!(case.checks(Completion::Early), [Check::Trap]);
}

/// Each of 40 blocks adds its box to the same place.
#[rstest]
fn blocks_add_up(#[values(Completion::Early, Completion::Late)] completion: Completion) {
    let case = Case { blocks: 40, ..sum() };
    let (found, findings) = case.run(completion);
    assert_eq!(findings, []);
    assert_eq!(found, 40f32.to_le_bytes().repeat(32));
}

/// What other blocks do to the tensor: atomics go together with a reduction, plain accesses do not.
#[rstest]
#[case("red.global.add.f32 [%rd9], 0f3F800000;", &[])]
#[case("st.global.f32 [%rd9], 0f40000000;", &[Check::RaceGlobal])]
#[case("ld.global.f32 %f1, [%rd9];", &[Check::RaceGlobal])]
fn what_is_reduced_elsewhere_takes_atomics_only(
    #[case] access: &str,
    #[case] expected: &[Check],
    #[values(Completion::Early, Completion::Late)] completion: Completion,
) {
    let before =
        format!("setp.eq.u32 %p3, %r9, 0; setp.ne.or.u32 %p4, %r1, 0, %p3; @%p4 bra G; {access} G: @!%p3 ret;");
    let case = Case { blocks: 2, before: before.leak(), ..sum() };
    assert_eq!(case.checks(completion), expected);
}

/// 2^24 + 1 + 1 in f32 shows the order: blocks go by their numbers.
#[test]
fn blocks_that_add_floats_go_in_order() {
    let before = "setp.ne.u32 %p3, %r9, 0; selp.u32 %r6, 0x3F800000, 0x4B800000, %p3; shl.b32 %r7, %r1, 2; add.u32 %r7, %r7, %r2; st.shared.u32 [%r7], %r6;";
    let case = Case { blocks: 3, before, ..sum() };
    assert!(Module::parse(&case.text()).unwrap().program("k", false).unwrap().traits.in_order);
    let (found, findings) = case.run(Completion::Early);
    assert_eq!(findings, []);
    assert_eq!(found, 16_777_216f32.to_le_bytes().repeat(32));
}

#[test]
fn a_policy_changes_nothing() {
    let text = sum()
        .text()
        .replace(".bulk_group [%rd2, {0, 0}], [%r2];", ".bulk_group.L2::cache_hint [%rd2, {0, 0}], [%r2], %rd9;");
    assert!(text.contains("cache_hint"));
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let source = memory.alloc(128, Some(&sum().source)).unwrap();
    let tensor = memory.alloc(128, Some(&[0; 128])).unwrap();
    let map = TensorMap { base: tensor, ..sum().map };
    let call = Launch::new("k", 1, 32).arg(Arg::bytes(&map.to_bytes().unwrap())).arg(source).arg(tensor);
    assert_eq!(run(&module, &call, &mut memory).findings, []);
    let mut out = [0; 128];
    memory.read(tensor, &mut out).unwrap();
    assert_eq!(out.to_vec(), 1f32.to_le_bytes().repeat(32));
}

#[rstest]
#[case("add.tile.bulk_group", "add.im2col_no_offs.bulk_group")]
#[case("add.tile.bulk_group", "tile.bulk_group")]
#[case("add.tile.bulk_group", "exch.tile.bulk_group")]
#[case("add.tile.bulk_group", "add.f32.tile.bulk_group")]
#[case("add.tile.bulk_group", "add.noftz.tile.bulk_group")]
#[case("add.tile.bulk_group", "add.tile")]
#[case("tensor.2d", "tensor.6d")]
#[case("tensor.2d", "tensor")]
#[case("global.shared::cta", "shared::cluster.shared::cta")]
fn forms_that_no_device_has_are_refused(#[case] form: &str, #[case] other: &str) {
    let good = sum().text();
    Module::parse(&good).unwrap().check("k").unwrap();
    let error = Module::parse(&good.replace(form, other)).unwrap().check("k").unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("cp.reduce"), "{error}");
}
