//! Launch rules: a query a block, for every shape; in half width the kernels of attention and of decode attention.
//!
//! Those see keys and values by tensor maps alone, in which a head of the cache is a matrix whose rows are a whole position
//! apart. A single query of each head lies where decode attention has it; several are seen by maps like the keys.

use super::Cached;
use crate::core::candidate::{Body, Cuda, IntoCandidate, Program};
use crate::core::launch::{Argument, Launch, Plan};
use crate::core::shape::Shape;
use crate::ops::attention::{self, Heads};
use crate::ops::attention_decode;
use std::sync::Arc;

/// Threads of a block of the naive kernel, keys of a stretch.
pub const THREADS: usize = 256;
/// Queries from which on a tile of 64 pays.
pub const FEWEST_QUERIES: usize = 16;
/// Keys from which on splitting them pays.
pub const FEWEST_KEYS: usize = 64;
/// What rows of tensor maps are a multiple of.
pub const UNIT: usize = 8;
/// The longest rows that decode attention serves.
pub const MOST_DIM: usize = 128;

/// A query a block, for every shape.
pub fn naive(s: &Cached) -> Plan {
    let launch = Launch::blocks(s.queries * s.batch * s.query_heads(), THREADS);
    let extents = [s.batch, s.heads, s.group, s.past, s.dim].map(|extent| extent as i32);
    extents.into_iter().fold(launch, Launch::scalar).scalar(s.scale() as f32).into()
}

/// Which kernels serve a shape in half width.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Path {
    /// The naive one.
    Naive,
    /// Tiles of queries (attention).
    Tiles,
    /// Parts of the keys of a head (decode attention).
    SplitKv,
}

fn path(s: &Cached) -> Path {
    if !s.dim.is_multiple_of(UNIT) || s.batch == 0 {
        Path::Naive
    } else if s.queries >= FEWEST_QUERIES {
        Path::Tiles
    } else if s.queries == 1 && s.dim <= MOST_DIM && s.group <= attention_decode::MOST_ROWS && s.keys() >= FEWEST_KEYS {
        Path::SplitKv
    } else {
        Path::Naive
    }
}

/// The same attention as the other operators have it.
fn heads(s: &Cached) -> Heads {
    let Cached { batch, heads, group, queries, dim, .. } = *s;
    Heads { batch, heads, group, queries, keys: s.keys(), dim, causal: true }
}

/// The rule in half width.
pub fn in_half() -> impl Fn(&Cached) -> Plan + Send + Sync + 'static {
    let (tiles, split_kv) = (program(attention::wgmma_kernel()), program(attention_decode::half_width_kernel()));
    move |s| match path(s) {
        Path::Naive => naive(s),
        Path::Tiles => by_position(attention::wgmma_plan(&heads(s)), s, &tiles),
        Path::SplitKv => by_position(attention_decode::half_width_plan(&heads(s)), s, &split_kv),
    }
}

/// Partials of splits that meet in memory.
pub fn workspace_bytes(s: &Cached) -> usize {
    if path(s) == Path::SplitKv { attention_decode::half_width_workspace_bytes(&heads(s)) } else { 0 }
}

fn program<S: Shape>(kernel: Cuda<S>) -> Arc<Program> {
    let Body::Cuda(kernel) = kernel.named("").body else { unreachable!("a kernel is one") };
    Arc::new(kernel.program)
}

/// The launches of another operator's program, on tensors whose rows are ordered position by position.
fn by_position(plan: Plan, s: &Cached, program: &Arc<Program>) -> Plan {
    let rebound = |mut launch: Launch| {
        for argument in &mut launch.arguments {
            let Argument::Map(map) = argument else { continue };
            let of_position =
                s.batch * if ["k", "v"].contains(&map.buffer.as_str()) { s.heads } else { s.query_heads() };
            // From a head to the next, and from a row to the next; what lies between are parts of a row.
            let mut strides = map.strides.take().unwrap_or_else(|| vec![0; map.extents.len() - 1]);
            if let [of_head, .., of_row] = &mut strides[..] {
                (*of_head, *of_row) = (s.dim, of_position * s.dim);
            }
            map.strides = Some(strides);
        }
        launch.of(Arc::clone(program))
    };
    Plan(plan.0.into_iter().map(rebound).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn of(queries: usize, past: usize, group: usize, dim: usize) -> Cached {
        Cached { batch: 2, heads: 4, group, queries, past, dim }
    }

    #[rstest]
    #[case::a_token(of(1, 400, 8, 64), Path::SplitKv)]
    #[case::a_prompt(of(300, 0, 8, 64), Path::Tiles)]
    #[case::a_prompt_behind_another(of(16, 100, 8, 128), Path::Tiles)]
    #[case::few_keys(of(1, 62, 8, 64), Path::Naive)]
    #[case::few_queries(of(2, 400, 8, 64), Path::Naive)]
    #[case::many_rows(of(1, 400, 9, 64), Path::Naive)]
    #[case::odd_rows(of(300, 0, 8, 60), Path::Naive)]
    #[case::long_rows(of(1, 400, 8, 136), Path::Naive)]
    #[case::a_prompt_of_long_rows(of(300, 0, 8, 256), Path::Tiles)]
    #[case::nothing(Cached { batch: 0, ..of(300, 0, 1, 64) }, Path::Naive)]
    fn each_shape_has_its_path(#[case] s: Cached, #[case] expected: Path) {
        assert_eq!(path(&s), expected);
    }

    #[rstest]
    #[case::tiles(of(300, 7, 3, 64), &[("q", [64, 2 * 12 * 64]), ("k", [64, 2 * 4 * 64]), ("v", [64, 2 * 4 * 64]), ("y", [64, 2 * 12 * 64])])]
    #[case::split_kv(of(1, 400, 3, 64), &[("k", [64, 2 * 4 * 64]), ("v", [64, 2 * 4 * 64])])]
    fn rows_of_a_head_are_a_position_apart(#[case] s: Cached, #[case] expected: &[(&str, [usize; 2])]) {
        let plan = in_half()(&s);
        let maps = plan.0.iter().flat_map(|launch| &launch.arguments).filter_map(|argument| match argument {
            Argument::Map(map) => Some((map.buffer.as_str(), map.strides.clone().unwrap().try_into().unwrap())),
            _ => None,
        });
        assert_eq!(maps.collect::<Vec<_>>(), expected);
    }
}
