//! Bulk copies by tensor map and without, into and out of shared memory.

use crate::sim::machine::memory::{Memory, Pointer};
use crate::sim::machine::tensor_map::{Element, Im2col, Swizzle, TensorMap};
use crate::sim::options::{Completion, Options};
use crate::sim::report::Check;
use crate::sim::run::launch;
use crate::sim::tests::{read_words, words};
use crate::sim::{Arg, Launch, Module};
use rstest::rstest;

/// A 20 x 6 tensor of words, rows 96 bytes apart, and boxes of 8 x 4.
fn map(base: Pointer, swizzle: Swizzle) -> TensorMap {
    TensorMap {
        base,
        element: Element::F32,
        extents: vec![20, 6],
        strides_bytes: vec![96],
        box_extents: vec![8, 4],
        swizzle,
        im2col: None,
    }
}

/// One warp: lane 0 fetches the box at (x, y), all wait, each lane writes what lies at its place in shared memory; then
/// the box goes out again.
fn fetch(x: i32, y: i32, swizzle: Swizzle, completion: Completion, wait: &str) -> (Vec<u32>, Vec<u32>, Vec<Check>) {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 m[128], .param .u64 p1, .param .u32 x, .param .u32 y, .param .align 64 .b8 n[128]) {{\n\
         .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<5>; .shared .align 1024 .b8 tile[1024]; .shared .align 8 .b8 bar[8];\n\
         mov.b64 %rd1, m; cvta.param.u64 %rd2, %rd1; mov.b64 %rd7, n; cvta.param.u64 %rd8, %rd7; ld.param.u64 %rd3, [p1]; ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y]; mov.u32 %r3, %tid.x; mov.u32 %r4, tile; mov.u32 %r5, bar;\n\
         setp.ne.u32 %p1, %r3, 0; @%p1 bra W; mbarrier.init.shared::cta.b64 [%r5], 1; fence.mbarrier_init.release.cluster;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 128;\n\
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd2, {{%r1, %r2}}], [%r5];\n\
         W: bar.warp.sync -1;\n{wait}\n\
         shl.b32 %r6, %r3, 2; add.u32 %r7, %r4, %r6; ld.shared.u32 %r8, [%r7]; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %rd3, %rd4; st.global.u32 [%rd5], %r8;\n\
         bar.warp.sync -1; @%p1 bra E; cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd8, {{%r1, %r2}}], [%r4]; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; E: ret; }}"
    );
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let tensor = words(&mut memory, &(0..144).map(|at| at / 24 * 100 + at % 24).collect::<Vec<_>>());
    let back = words(&mut memory, &[9999; 144]);
    let out = words(&mut memory, &[0; 32]);
    let bytes = |base| Arg::bytes(&map(base, swizzle).to_bytes().unwrap());
    let call = Launch::new("k", 1, 32).arg(bytes(tensor)).arg(out).arg(x).arg(y).arg(bytes(back));
    let options = Options { completion, ..Options::default() };
    let report = launch(&module, &call, &mut memory, &options).unwrap();
    let checks = report.findings.iter().map(|finding| finding.check).collect();
    (read_words(&memory, out, 32), read_words(&memory, back, 144), checks)
}

const WAIT: &str = "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra L;";

#[rstest]
fn a_box_arrives_and_goes_back(
    #[values((0, 0), (4, 1), (16, 4), (-4, -2))] (x, y): (i32, i32),
    #[values(Swizzle::None, Swizzle::Bytes32)] swizzle: Swizzle,
    #[values(Completion::Early, Completion::Late)] completion: Completion,
) {
    let (found, back, checks) = fetch(x, y, swizzle, completion, WAIT);
    assert_eq!(checks, []);
    let inside = |column: i32, row: i32| (0..20).contains(&column) && (0..6).contains(&row);
    for row in 0..4 {
        for column in 0..8 {
            let (gx, gy) = (x + column, y + row);
            let expected = if inside(gx, gy) { gy * 100 + gx } else { 0 };
            let place = swizzle.apply((row * 32 + column * 4) as u64) / 4;
            assert_eq!(found[place as usize], expected as u32, "{column} {row}");
        }
    }
    for at in 0..144 {
        let (column, row) = (at % 24, at / 24);
        let copied = inside(column, row) && (x..x + 8).contains(&column) && (y..y + 4).contains(&row);
        assert_eq!(back[at as usize], if copied { (row * 100 + column) as u32 } else { 9999 }, "{column} {row}");
    }
}

#[rstest]
fn a_box_without_a_wait_is_found(#[values(Completion::Early, Completion::Late)] completion: Completion) {
    let (_, _, mut checks) = fetch(0, 0, Swizzle::None, completion, "");
    checks.retain(|check| *check != Check::UninitialisedShared);
    assert!(!checks.is_empty() && checks.iter().all(|check| *check == Check::AsyncCopy), "{checks:?}");
}

/// One lane copies four places of 5 x 4 images with 4 channels, from column 3 of row 0 on, a column and two rows further.
fn im2col(mode: &str, offsets: &str, im2col: Option<Im2col>) -> (Vec<u32>, Vec<Check>) {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .align 64 .b8 m[128], .param .u64 p1) {{\n\
         .reg .b16 %h<3>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<5>; .shared .align 128 .b8 tile[64]; .shared .align 8 .b8 bar[8];\n\
         mov.b64 %rd1, m; cvta.param.u64 %rd2, %rd1; ld.param.u64 %rd3, [p1]; mov.u32 %r4, tile; mov.u32 %r5, bar; mov.u16 %h1, 1; mov.u16 %h2, 2;\n\
         mbarrier.init.shared::cta.b64 [%r5], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 64;\n\
         cp.async.bulk.tensor.4d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes [%r4], [%rd2, {{0, 3, 0, 0}}], [%r5]{offsets};\n\
         L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra L;\n\
         ld.shared.u32 %r6, [%r4]; ld.shared.u32 %r7, [%r4+16]; ld.shared.u32 %r8, [%r4+32]; ld.shared.u32 %r9, [%r4+48]; st.global.v4.u32 [%rd3], {{%r6, %r7, %r8, %r9}}; ret; }}"
    );
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let tensor = words(&mut memory, &(0..2 * 4 * 5 * 4).map(|at| at / 4).collect::<Vec<_>>());
    let out = words(&mut memory, &[9999; 4]);
    let images = TensorMap {
        base: tensor,
        element: Element::F32,
        extents: vec![4, 5, 4, 2],
        strides_bytes: vec![16, 80, 320],
        box_extents: vec![4, 1, 1, 4],
        swizzle: Swizzle::None,
        im2col,
    };
    let call = Launch::new("k", 1, 1).arg(Arg::bytes(&images.to_bytes().unwrap())).arg(out);
    let report = launch(&module, &call, &mut memory, &Options::default()).unwrap();
    (read_words(&memory, out, 4), report.findings.iter().map(|finding| finding.check).collect())
}

#[test]
fn a_copy_walks_over_images() {
    // Columns 0 to 3, every second row from 0 to 2.
    let border = Im2col { lower_corner: [0, 0], upper_corner: [-1, -1], stride: [1, 2] };
    let (found, checks) = im2col("im2col", ", {%h1, %h2}", Some(border));
    assert_eq!(checks, []);
    // (3, 0) and then (0, 2), (1, 2), (2, 2), each a column and two rows further: the last three lie below the image.
    assert_eq!(found, [14, 0, 0, 0]);
}

#[test]
fn a_copy_in_another_mode_than_its_map_is_found() {
    let border = Im2col { lower_corner: [0, 0], upper_corner: [0, 0], stride: [1, 1] };
    assert_eq!(im2col("tile", "", Some(border)).1, [Check::Trap]);
    assert_eq!(im2col("im2col", ", {%h1, %h2}", None).1, [Check::Trap]);
}

#[rstest]
fn a_plain_bulk_copy_moves_bytes(#[values(Completion::Early, Completion::Late)] completion: Completion) {
    let text = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {\n\
        .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<5>; .shared .align 128 .b8 tile[256]; .shared .align 8 .b8 bar[8];\n\
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r4, tile; mov.u32 %r5, bar; mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 64;\n\
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 64, [%r5];\n\
        L: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0; @!%p2 bra L;\n\
        cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r4], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret; }";
    let module = Module::parse(text).unwrap();
    let mut memory = Memory::new();
    let from = words(&mut memory, &(0..16).collect::<Vec<_>>());
    let to = memory.alloc(64, None).unwrap();
    let options = Options { completion, ..Options::default() };
    let report = launch(&module, &Launch::new("k", 1, 1).arg(from).arg(to), &mut memory, &options).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(read_words(&memory, to, 16), (0..16).collect::<Vec<_>>());
}
