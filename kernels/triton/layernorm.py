"""Layer normalisation over the last axis, y = (x - mean) / sqrt(variance + eps) * weight + bias, in f32.

x, y [rows, cols]; weight, bias [cols].
"""

import triton
import triton.language as tl
from normalise import ALIGNED, SCALARS, TENSORS, held, looped
from rows import variants


@triton.jit
def layernorm_held(x, weight, bias, y, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    held(x, weight, bias, y, rows, cols, eps, ROWS, BLOCK, GELU=False)


@triton.jit
def layernorm_looped(x, weight, bias, y, rows, cols, eps, BLOCK: tl.constexpr):
    looped(x, weight, bias, y, rows, cols, eps, BLOCK, GELU=False)


__all__ = ["TENSORS", "SCALARS", "ALIGNED", "VARIANTS"]
VARIANTS = list(variants(layernorm_held, layernorm_looped))
