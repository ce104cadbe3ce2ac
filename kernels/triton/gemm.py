"""Matrix product c = a b with sums in f32. a [m, k], b [k, n], c [m, n], row-major.

f32 factors are multiplied as they are, not rounded to TF32.
"""

import triton
import triton.language as tl


@triton.jit
def gemm(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K_BYTES: tl.constexpr, TILES: tl.constexpr):
    """A tile of c. Programs that follow each other take TILES tiles of a column of c, then the next column."""
    K: tl.constexpr = K_BYTES * 8 // a.dtype.element_ty.primitive_bitwidth
    down, across = tl.cdiv(m, M), tl.cdiv(n, N)
    band = tl.program_id(0) // (TILES * across)
    within = tl.program_id(0) % (TILES * across)
    height = tl.minimum(down - band * TILES, TILES)
    row = (band * TILES + within % height) * M + tl.arange(0, M)
    col = within // height * N + tl.arange(0, N)
    part = tl.arange(0, K)
    a_at = a + row.to(tl.int64)[:, None] * k + part[None, :]
    b_at = b + part.to(tl.int64)[:, None] * n + col[None, :]
    sums = tl.zeros([M, N], tl.float32)
    for start in range(0, k, K):
        there = part < k - start
        left = tl.load(a_at, mask=(row < m)[:, None] & there[None, :], other=0.0)
        right = tl.load(b_at, mask=there[:, None] & (col < n)[None, :], other=0.0)
        sums = tl.dot(left, right, sums, input_precision="ieee")
        a_at += K
        b_at += K * n
    c_at = c + row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(c_at, sums.to(c.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])


TENSORS = ["a", "b", "c"]
SCALARS = {"m": "i32", "n": "i32", "k": "i32"}
# A row of b or c starts on 16 bytes if n allows it, a row of a if k does.
ALIGNED = ["n", "k"]
# Extents are multiples of 16 or anything; up to so many rows: rows and columns of a tile, warps.
TILES = [(16, 16, 16, 128, 4), (16, 1024, 64, 128, 4), (16, 1 << 20, 128, 128, 8), (1, 1 << 20, 64, 128, 4)]
VARIANTS = [
    {
        "program": gemm,
        "constants": {"M": rows, "N": cols, "K_BYTES": 128, "TILES": 8},
        "warps": warps,
        "stages": 3,
        "up_to": up_to,
        "divisor": divisor,
        "per_program": rows,
    }
    for divisor, up_to, rows, cols, warps in TILES
]
