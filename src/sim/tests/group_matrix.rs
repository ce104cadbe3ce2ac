//! The tensor-map and warp-group fixture: right in every mode, and wrong in the ways that such kernels go wrong.

use crate::sim::machine::memory::Memory;
use crate::sim::machine::tensor_map::{Element, Swizzle, TensorMap};
use crate::sim::options::{Accumulation, Completion, Options, WarpOrder};
use crate::sim::report::Check;
use crate::sim::run::launch;
use crate::sim::{Arg, Dim, Launch, Module};
use half::bf16;
use rstest::rstest;

const PTX: &str = include_str!("../../../fixtures/ptx/wgmma_tma.ptx");
const SIZE: usize = 256;

fn small(row: usize, column: usize, seed: usize) -> f32 {
    ((row * 7 + column * 5 + seed * 3) % 9) as f32 - 4.0
}

fn matrix(seed: usize, transposed: bool) -> Vec<u8> {
    let element =
        |at: usize| if transposed { small(at % SIZE, at / SIZE, seed) } else { small(at / SIZE, at % SIZE, seed) };
    (0..SIZE * SIZE).flat_map(|at| bf16::from_f32(element(at)).to_le_bytes()).collect()
}

/// Multiplies 256 x 256 matrices; gives the number of wrong elements and what was found.
fn multiply(text: &str, entry: &str, options: &Options) -> (usize, Vec<Check>) {
    let module = Module::parse(text).unwrap();
    let mut memory = Memory::new();
    let bytes = (SIZE * SIZE) as u64;
    let a = memory.alloc(2 * bytes, Some(&matrix(1, false))).unwrap();
    let b = memory.alloc(2 * bytes, Some(&matrix(2, entry == "gemm_k_major"))).unwrap();
    let c = memory.alloc(4 * bytes, Some(&vec![0; 4 * SIZE * SIZE])).unwrap();
    let map = |base| TensorMap {
        base,
        element: Element::Bf16,
        extents: vec![SIZE as u64; 2],
        strides_bytes: vec![2 * SIZE as u64],
        box_extents: vec![64, 64],
        swizzle: Swizzle::Bytes128,
        im2col: None,
    };
    let map = |base| Arg::bytes(&map(base).to_bytes().unwrap());
    let blocks = (SIZE / 64) as u32;
    let call = Launch::new(entry, Dim::new(blocks, blocks, 1), 128)
        .arg(map(a))
        .arg(map(b))
        .arg(c)
        .arg(SIZE as i32)
        .arg(SIZE as i32);
    let report = launch(&module, &call, &mut memory, options).unwrap();
    let mut out = vec![0; 4 * SIZE * SIZE];
    memory.read(c, &mut out).unwrap();
    let wrong = out.chunks_exact(4).enumerate().filter(|(at, chunk)| {
        let (row, column) = (at / SIZE, at % SIZE);
        let expected: f32 = (0..SIZE).map(|k| small(row, k, 1) * small(k, column, 2)).sum();
        f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]) != expected
    });
    (wrong.count(), report.findings.iter().map(|finding| finding.check).collect())
}

#[rstest]
fn products_are_right_in_every_mode(
    #[values("gemm_k_major", "gemm_n_major")] entry: &str,
    #[values(Completion::Early, Completion::Late)] completion: Completion,
    #[values(WarpOrder::Ascending, WarpOrder::Descending, WarpOrder::Seeded)] warp_order: WarpOrder,
) {
    let options =
        Options { completion, warp_order, accumulation: Accumulation::Shuffled, seed: 3, ..Options::default() };
    assert_eq!(multiply(PTX, entry, &options), (0, vec![]));
}

#[rstest]
#[case::no_wait_for_the_product("wgmma.wait_group.sync.aligned 0;", "", Check::AsyncCopy)]
#[case::product_of_half_the_k("m64n64k16.f32.bf16.bf16", "m64n64k16.f32.f16.f16", Check::Trap)]
fn defects_of_pipelines_are_found(
    #[case] from: &str,
    #[case] to: &str,
    #[case] check: Check,
    #[values(Completion::Early, Completion::Late)] completion: Completion,
) {
    let text = PTX.replace(from, to);
    assert_ne!(text, PTX);
    let (wrong, checks) = multiply(&text, "gemm_k_major", &Options { completion, ..Options::default() });
    // Another element type breaks no rule: it only gives other numbers.
    assert!(checks.contains(&check) || (check == Check::Trap && wrong > 0), "{checks:?}");
}

const FENCE: &str = "wgmma.fence.sync.aligned;";

/// The fixture with something else in the place of each fence behind the first of an entry; `SUM` stands for a sum of the
/// products that follow.
fn behind_the_first_fence(place: &str) -> String {
    let mut entries = PTX.split(".entry ").map(|entry| {
        let mut parts = entry.split(FENCE);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (at, part) in parts.enumerate() {
            let sum = part.split_once("mma_async").and_then(|(_, rest)| rest.split(['{', ',']).nth(1));
            text += if at == 0 { FENCE.into() } else { place.replace("SUM", sum.unwrap_or_default()) }.as_str();
            text += part;
        }
        text
    });
    let head = entries.next().unwrap_or_default();
    entries.fold(head, |text, entry| text + ".entry " + &entry)
}

#[rstest]
#[case::fenced("mul.f32 SUM, SUM, 0f3F800000; wgmma.fence.sync.aligned;", false)]
#[case::sums_left_alone("", false)]
#[case::sums_used("mul.f32 SUM, SUM, 0f3F800000;", true)]
fn a_fence_is_asked_for_where_sums_were_used(#[case] place: &str, #[case] is_found: bool) {
    let text = behind_the_first_fence(place);
    assert_ne!(text, PTX);
    let found = if is_found { vec![Check::MissingFence] } else { vec![] };
    let (wrong, mut checks) = multiply(&text, "gemm_n_major", &Options::default());
    checks.dedup();
    assert_eq!((wrong, checks), (0, found));
}

#[rstest]
fn a_first_product_without_a_fence_is_found(#[values(Completion::Early, Completion::Late)] completion: Completion) {
    let options = Options { completion, ..Options::default() };
    let (wrong, checks) = multiply(&PTX.replace(FENCE, ""), "gemm_k_major", &options);
    assert!(wrong == 0 && checks.contains(&Check::MissingFence), "{checks:?}");
}

#[test]
fn a_wait_whose_answer_nobody_looks_at_is_found_in_late_mode() {
    // In early mode every answer is yes: the kernel is right by luck.
    let options = Options { completion: Completion::Late, ..Options::default() };
    let (_, checks) = multiply(&PTX.replace("@P bra DONE;", "bra DONE;"), "gemm_k_major", &options);
    assert!(checks.contains(&Check::AsyncCopy), "{checks:?}");
}

#[rstest]
fn a_copy_that_is_announced_and_never_issued_is_found(
    #[values(Completion::Early, Completion::Late)] completion: Completion,
) {
    let copy = PTX.lines().find(|line| line.contains("cp.async.bulk.tensor")).unwrap();
    let (_, checks) =
        multiply(&PTX.replacen(copy, "", 1), "gemm_k_major", &Options { completion, ..Options::default() });
    assert!(checks.contains(&Check::Deadlock), "{checks:?}");
}

#[rstest]
fn a_stage_overwritten_too_early_is_found(#[values(Completion::Early, Completion::Late)] completion: Completion) {
    // The barrier at the end of a step: after the wait for the products.
    let (head, tail) = PTX.split_once("wgmma.wait_group.sync.aligned 0;").unwrap();
    let text = format!("{head}wgmma.wait_group.sync.aligned 0;{}", tail.replacen("bar.sync \t0;", "", 1));
    assert_ne!(text, PTX);
    let options = Options { completion, warp_order: WarpOrder::Seeded, seed: 1, ..Options::default() };
    let (_, checks) = multiply(&text, "gemm_k_major", &options);
    assert!(!checks.is_empty());
}
