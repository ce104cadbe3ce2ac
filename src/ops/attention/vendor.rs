//! Attention by cuDNN, as the vendor's candidate.

use super::{HALF, Heads, rounded_weights};
use crate::core::candidate::{CudaHost, Declare};
use crate::device::cuda::cudnn_attention::{self, Attention};

fn described(s: &Heads) -> Attention {
    let &Heads { batch, heads, group, queries, keys, dim, causal } = s;
    Attention { batch, heads, group, queries, keys, dim, causal }
}

/// Skipped where the library is absent. Its engine may not be the one of the last process, so it has no bits to keep.
pub fn cudnn() -> CudaHost<Heads> {
    CudaHost::new(|s: &Heads, call| cudnn_attention::enqueue(described(s), call))
        .prepare(|s, dtype| cudnn_attention::prepare(described(s), dtype))
        .describe(|s, dtype| cudnn_attention::describe(described(s), dtype))
        .workspace(|_| cudnn_attention::WORKSPACE_BYTES)
        .tiles([("queries", 64), ("queries", 128), ("keys", 128), ("dim", 8), ("dim", 64), ("dim", 128)])
        .dtypes(HALF)
        .tolerance(rounded_weights())
        .nondeterministic()
}
