"""The catalogue's operators in PyTorch: what a user would write, and what Liger offers."""

import torch
import torch.nn.functional as F


def _rope(shape, x, cosine, sine):
    a, b = x.chunk(2, dim=-1)
    cosine, sine = cosine[:, None, :], sine[:, None, :]
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)


def _add_rmsnorm(shape, x, residual, weight):
    total = x + residual
    return F.rms_norm(total, (shape["cols"],), weight, shape["eps"]), total


def _layernorm(shape, x, weight, bias):
    return F.layer_norm(x, (shape["cols"],), weight, bias, shape["eps"])


# Every operator takes the shape and its inputs, and gives a tensor or a tuple of them.
EAGER = {
    "gelu": lambda shape, x: F.gelu(x),
    "gelu_tanh": lambda shape, x: F.gelu(x, approximate="tanh"),
    "silu": lambda shape, x: F.silu(x),
    "swiglu": lambda shape, gate, up: F.silu(gate) * up,
    "layernorm": _layernorm,
    "layernorm_gelu": lambda shape, x, weight, bias: F.gelu(_layernorm(shape, x, weight, bias)),
    "rmsnorm": lambda shape, x, weight: F.rms_norm(x, (shape["cols"],), weight, shape["eps"]),
    "add_rmsnorm": _add_rmsnorm,
    "softmax": lambda shape, x: torch.softmax(x, dim=-1),
    "row_sum": lambda shape, x: x.sum(dim=-1),
    "row_mean": lambda shape, x: x.mean(dim=-1),
    "rope": _rope,
    "gemm": lambda shape, a, b: a @ b,
    "embedding": lambda shape, table, ids: F.embedding(ids, table),
}


def compiled():
    """The same under torch.compile: one compilation a shape."""
    # Past the limit torch.compile falls back to eager code without a word.
    for limit in ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit", "accumulated_cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 1 << 20)
    return {name: torch.compile(function, dynamic=False) for name, function in EAGER.items()}


def liger():
    """What Liger has, by its autograd functions, with the settings that its modules use for Llama."""
    from liger_kernel.ops import layer_norm, rms_norm, softmax, swiglu

    operators = {
        "layernorm": lambda shape, x, weight, bias: layer_norm.LigerLayerNormFunction.apply(
            x, weight, bias, shape["eps"]
        ),
        "rmsnorm": lambda shape, x, weight: rms_norm.LigerRMSNormFunction.apply(
            x, weight, shape["eps"], 0.0, "llama", False
        ),
        "softmax": lambda shape, x: softmax.LigerSoftmaxFunction.apply(x),
        "swiglu": lambda shape, gate, up: swiglu.LigerSiLUMulFunction.apply(gate, up),
    }
    try:
        from liger_kernel.ops import fused_add_rms_norm as fused

        operators["add_rmsnorm"] = lambda shape, x, residual, weight: fused.LigerFusedAddRMSNormFunction.apply(
            x, residual, weight, shape["eps"], 0.0, "llama", False
        )
    except ImportError:
        pass
    return operators
