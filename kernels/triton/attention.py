"""Attention y = softmax(q k^T * scale) v, online: the weights of a step of keys never leave the chip.

q, y [heads, queries, dim]; k, v [heads / group, keys, dim]. With `causal` the last query sees all keys and each one before
it one fewer; a query that sees none gives zeros. Scores and sums in f32, weights rounded to the dtype: f16 or bf16.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def step(query, out, largest, total, k_at, v_at, key, keys, seen, depth, scale, MASKED: tl.constexpr):
    """The keys of one step. Keys past the end are masked if the step may hold any, and those that a query does not see."""
    there = key < keys
    left = tl.load(k_at, mask=depth[:, None] & there[None, :], other=0.0)
    score = tl.dot(query, left) * (scale * LOG2_E)
    if MASKED:
        score = tl.where(key[None, :] < seen[:, None], score, -float("inf"))
    above = tl.maximum(largest, tl.max(score, axis=1))
    # A query that has seen nothing yet is taken from 0: -inf - -inf is NaN.
    base = tl.where(above == -float("inf"), 0.0, above)
    weight = tl.exp2(score - base[:, None])
    kept = tl.exp2(largest - base)
    value = tl.load(v_at, mask=there[:, None] & depth[None, :], other=0.0)
    out = tl.dot(weight.to(value.dtype), value, out * kept[:, None])
    return out, above, total * kept + tl.sum(weight, axis=1)


@triton.jit
def attention(q, k, v, y, group, queries, keys, dim, causal, scale, QUERIES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr):
    """A tile of queries of one head. Of a causal head the long tiles come first."""
    of_head = tl.cdiv(queries, QUERIES)
    head = (tl.program_id(0) // of_head).to(tl.int64)
    first = (of_head - 1 - tl.program_id(0) % of_head) * QUERIES
    row = first + tl.arange(0, QUERIES)
    lane = tl.arange(0, DIM)
    depth = lane < dim
    inside = (row < queries)[:, None] & depth[None, :]
    at = (head * queries + row)[:, None] * dim + lane[None, :]
    query = tl.load(q + at, mask=inside, other=0.0)

    # Query i sees the first i + 1 + keys - queries keys, or all.
    seen = tl.minimum(keys, tl.where(causal != 0, row + 1 + keys - queries, keys))
    last = tl.minimum(first + QUERIES, queries) + keys - queries
    end = tl.minimum(keys, tl.where(causal != 0, last, keys))
    common = tl.minimum(keys, tl.where(causal != 0, first + 1 + keys - queries, keys))
    whole = tl.maximum(common, 0) // KEYS * KEYS

    key = tl.arange(0, KEYS)
    base = head // group * keys * dim
    k_at = k + base + lane[:, None] + key.to(tl.int64)[None, :] * dim
    v_at = v + base + key.to(tl.int64)[:, None] * dim + lane[None, :]
    out = tl.zeros([QUERIES, DIM], tl.float32)
    largest = tl.full([QUERIES], -float("inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    for start in range(0, whole, KEYS):
        out, largest, total = step(query, out, largest, total, k_at, v_at, start + key, keys, seen, depth, scale, False)
        k_at += KEYS * dim
        v_at += KEYS * dim
    for start in range(whole, end, KEYS):
        out, largest, total = step(query, out, largest, total, k_at, v_at, start + key, keys, seen, depth, scale, True)
        k_at += KEYS * dim
        v_at += KEYS * dim
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(y + at, out.to(y.dtype.element_ty), mask=inside)


DTYPES = ["f16", "bf16"]
TENSORS = ["q", "k", "v", "y"]
SCALARS = {"group": "i32", "queries": "i32", "keys": "i32", "dim": "i32", "causal": "i32", "scale": "fp32"}
ALIGNED = ["dim"]
# A warp has 16 queries to itself: see README.md. Dims are multiples of 16 or anything; up to such a dim: queries of a
# tile, keys of a step, warps.
TILES = [(16, 64, 128, 64, 4), (16, 128, 128, 64, 8), (1, 256, 64, 32, 4)]
VARIANTS = [
    {
        "program": attention,
        "constants": {"QUERIES": queries, "KEYS": keys, "DIM": up_to},
        "warps": warps,
        "stages": 2,
        "up_to": up_to,
        "divisor": divisor,
        "per_program": queries,
    }
    for divisor, up_to, queries, keys, warps in TILES
]
