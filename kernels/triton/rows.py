"""What the programs over rows share: which rows a program holds, and where their elements lie.

A program holds ROWS rows of at most BLOCK columns on chip; what lies past the end of a row, or past the last row, is
masked. Offsets are 64 bits wide: a matrix may have more than 2^31 elements.
"""

import triton
import triton.language as tl


@triton.jit
def tile(rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The rows of this program, the columns, the offsets of their elements and the mask of those that are there."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row.to(tl.int64)[:, None] * cols + column[None, :]
    return column, at, (row < rows)[:, None] & (column < cols)[None, :]


# Block sizes of the programs that hold whole rows: up to so many columns, rows a program, warps a program. A row has one
# warp to itself where that is enough, and several rows share a warp where one would leave most of its lanes idle: no
# reduction of theirs leaves the warp. The loads of a program are all in flight together, 8 to 32 elements a thread.
# Where the columns are a multiple of 16 accesses are 16 bytes wide, elsewhere an element: what a caller of Triton's own
# compiler would be given. For the latter fewer sizes do.
HELD = {
    16: [(64, 16, 4), (256, 1, 1), (1024, 1, 4), (2048, 1, 4), (4096, 1, 8), (8192, 1, 8), (32768, 1, 32)],
    1: [(64, 1, 1), (1024, 1, 4), (8192, 1, 8), (32768, 1, 32)],
}
# Of programs that go over a row in steps, for rows that are longer: columns a step, warps.
LOOPED = (8192, 16)
LIMIT = 1 << 18


def variants(held, looped):
    """The programs of an operator over rows, the ones to try first in front."""
    for divisor, sizes in HELD.items():
        for block, rows, warps in sizes:
            constants = {"ROWS": rows, "BLOCK": block}
            yield {"program": held, "constants": constants, "warps": warps, "up_to": block, "divisor": divisor, "per_program": rows}
        block, warps = LOOPED
        yield {"program": looped, "constants": {"BLOCK": block}, "warps": warps, "up_to": LIMIT, "divisor": divisor, "per_program": 1}
