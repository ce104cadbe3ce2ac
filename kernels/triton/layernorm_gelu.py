"""Layer normalisation and GELU (erf) of the result in one program, nothing rounded in between, in f32.

x, y [rows, cols]; weight, bias [cols].
"""

import triton
import triton.language as tl
from normalise import ALIGNED, SCALARS, TENSORS, held, looped
from rows import variants


@triton.jit
def layernorm_gelu_held(x, weight, bias, y, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    held(x, weight, bias, y, rows, cols, eps, ROWS, BLOCK, GELU=True)


@triton.jit
def layernorm_gelu_looped(x, weight, bias, y, rows, cols, eps, BLOCK: tl.constexpr):
    looped(x, weight, bias, y, rows, cols, eps, BLOCK, GELU=True)


__all__ = ["TENSORS", "SCALARS", "ALIGNED", "VARIANTS"]
VARIANTS = list(variants(layernorm_gelu_held, layernorm_gelu_looped))
