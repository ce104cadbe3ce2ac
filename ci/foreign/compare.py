"""Comparisons of a library's operators, run in the simulator, with a reference in double precision.

A case is a name, inputs, the library's function and the reference. Both get the same numbers; outputs are compared, and
after a backward pass with one random cotangent the gradients of all inputs that ask for one. A comparison is right if every
tensor is within its tolerance, something was launched, and no launch was refused. What the checks of the simulator find stands
beside it: a right result does not make a race right.
"""

import dataclasses
import time
import traceback
from typing import Callable

import torch

# What an element may be off by, in parts of the root mean square of all of them and of itself: a few roundings of the dtype
# that results are stored in; f32 has the intermediate sums on top, which libraries order as they like.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclasses.dataclass
class Case:
    name: str
    # Makes the inputs of a dtype: tensors, of which those that need a gradient say so.
    inputs: Callable
    run: Callable
    reference: Callable
    dtypes: tuple = ("f32", "f16", "bf16")
    # A factor on the tolerance, and why.
    slack: float = 1.0
    because: str = ""
    # The factor where no product is in TF32.
    ieee_slack: float | None = None
    gradients: bool = True


def tensors(results):
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [result for result in results if isinstance(result, torch.Tensor)]


def differentiable(results):
    return [result for result in results if result.requires_grad]


def gradients(results, inputs, seed):
    """Gradients of the inputs for one cotangent, the same for every result of the same shape."""
    generator = torch.Generator().manual_seed(seed)
    outputs = differentiable(results)
    cotangents = [torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype) for out in outputs]
    wanted = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
    if not outputs or not wanted:
        return []
    torch.autograd.backward(outputs, cotangents)
    return [value.grad for value in wanted]


def error(got, want, dtype):
    """The largest error in parts of what is allowed, for one tensor."""
    if got is None or got.shape != want.shape:
        return float("inf")
    got, want = got.detach().double(), want.detach().double()
    if got.numel() == 0:
        return 0.0
    if not torch.equal(got.isfinite(), want.isfinite()):
        return float("inf")
    finite = want.isfinite()
    if not torch.equal(got[~finite & ~want.isnan()], want[~finite & ~want.isnan()]):
        return float("inf")
    scale = want[finite].square().mean().sqrt() + want[finite].abs()
    off = (got[finite] - want[finite]).abs()
    # The tolerance is that of the stored dtype, or of the inputs where the result is wider than they are.
    allowed = max(TOLERANCE.get(dtype, 0), TOLERANCE[torch.float32]) * scale
    worst = (off / allowed.clamp_min(1e-300))[off > 0]
    return worst.max().item() if worst.numel() else 0.0


def copy(values, dtype):
    """The same numbers, in another dtype where they are fractions."""

    def one(value):
        if not isinstance(value, torch.Tensor):
            return value
        asks = value.requires_grad
        value = value.detach().clone()
        return (value.to(dtype) if dtype and value.is_floating_point() else value).requires_grad_(asks)

    return [one(value) for value in values]


def compare(case, dtype, launches, ieee=False, seed=7):
    torch.manual_seed(seed)
    first = len(launches.records)
    slack = case.ieee_slack if ieee and case.ieee_slack else case.slack
    start = time.monotonic()
    row = {"case": case.name, "dtype": dtype, "verdict": "wrong", "worst": None, "slack": slack, "because": case.because, "why": ""}
    try:
        given = case.inputs(DTYPES[dtype])
        mine, exact = copy(given, None), copy(given, torch.float64)
        got, want = tensors(case.run(*mine)), tensors(case.reference(*exact))
        if case.gradients:
            got_gradients, want_gradients = gradients(got, mine, seed), gradients(want, exact, seed)
            if not got_gradients:
                raise AssertionError("no gradient came")
            got, want = got + got_gradients, want + want_gradients
        if len(got) != len(want):
            raise AssertionError(f"{len(got)} results for {len(want)} of the reference")
        errors = [error(a, b, DTYPES[dtype]) / slack for a, b in zip(got, want)]
        row["worst"] = round(max(errors), 4)
        row["tensors"] = len(errors)
        if row["worst"] <= 1:
            row["verdict"] = "right"
        else:
            row["why"] = "values: " + ", ".join(f"{value:.3g}" for value in errors)
    except Exception as failure:  # whatever a library throws is a row
        row["why"] = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
        row["trace"] = traceback.format_exc()[-3000:]
    made = launches.records[first:]
    row["launches"] = len(made)
    row["kernels"] = sorted({record["kernel"] for record in made})
    row["warp_instructions"] = sum(record.get("warp_instructions", 0) for record in made)
    row["seconds"] = round(time.monotonic() - start, 1)
    refused = sorted({record["error"] for record in made if record.get("error")})
    row["findings"] = sorted({finding for record in made for finding in record.get("findings", [])})[:3]
    if refused:
        row["verdict"], row["why"] = "refused", refused[0]
    elif not made:
        row["verdict"], row["why"] = "wrong", row["why"] or "nothing was launched"
    return row
