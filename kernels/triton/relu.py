"""ReLU, y = x < 0 ? 0 : x, so that NaN stays, in f32. x, y [n]."""

import triton
import triton.language as tl


@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside).to(tl.float32)
    tl.store(y + at, tl.where(value < 0.0, 0.0, value), mask=inside)


TENSORS = ["x", "y"]
SCALARS = {"n": "i64"}
ALIGNED = ["n"]
# Eight elements a thread: one access of 16 bytes at half width where n is a multiple of 16, two in f32.
VARIANTS = [
    {"program": relu, "constants": {"BLOCK": 1024}, "warps": 4, "up_to": 1 << 32, "divisor": divisor, "per_program": 1024}
    for divisor in (16, 1)
]
