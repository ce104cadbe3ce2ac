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


def _attention(shape, q, k, v):
    queries, keys = shape["queries"], shape["keys"]
    causal = shape["causal"] and queries > 1  # a single query sees all keys
    if not causal or queries == keys:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shape["group"] > 1)
    seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=shape["group"] > 1)


def _attention_paged(shape, q, k, v, page_table, lengths):
    """Pages gathered, a sequence's one behind the other, and a mask of its length."""
    batch, keys = page_table.shape[0], page_table.shape[1] * shape["page"]
    table = page_table.long()
    k, v = (pool[table].view(batch, keys, shape["heads"], shape["dim"]).transpose(1, 2) for pool in (k, v))
    seen = torch.arange(keys, device=q.device)[None, :] < lengths[:, None]
    y = F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=seen[:, None, None], enable_gqa=shape["group"] > 1)
    return torch.where(lengths[:, None, None] > 0, y[:, :, 0], 0)


# Convolutions in f32 otherwise round their inputs to TF32, and cuDNN's algorithms are guessed at, not measured.
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True


def _conv2d(shape, x, w):
    options = {name: shape[name] for name in ("stride", "padding", "dilation")}
    if shape["layout"] == "nchw":
        return F.conv2d(x, w, **options)
    # A view: the memory is channels-last already, and so is what comes back.
    inside, outside = (0, 3, 1, 2), (0, 2, 3, 1)
    return F.conv2d(x.permute(inside), w.permute(inside), **options).permute(outside)


_ACTIVATIONS = {
    "none": lambda sums: sums,
    "gelu_tanh": lambda sums: F.gelu(sums, approximate="tanh"),
    "silu": F.silu,
}


def _linear(shape, x, w, bias, residual):
    y = _ACTIVATIONS[shape["activation"]](F.linear(x, w, bias))
    return y + residual if shape["residual"] else y


def _linear_in_one_launch(shape, x, w, bias, residual):
    if shape["activation"] != "gelu_tanh" or shape["residual"]:
        raise ValueError("PyTorch fuses GELU with a bias, and nothing else")
    return torch._addmm_activation(bias, x, w.t(), use_gelu=True)


_lstms = {}


def _lstm(shape, x, w, w_above, r, bias):
    """cuDNN's on a GPU. The module and its packed weights are made once a shape; calls that a graph records find them."""
    key = (*(shape[name] for name in ("inputs", "hidden", "layers")), x.dtype, x.device)
    if key not in _lstms:
        _lstms[key] = torch.nn.LSTM(shape["inputs"], shape["hidden"], shape["layers"]).to(x.device, x.dtype)
    module = _lstms[key]
    with torch.no_grad():
        if not (x.is_cuda and torch.cuda.is_current_stream_capturing()):
            for layer in range(shape["layers"]):
                getattr(module, f"weight_ih_l{layer}").copy_(w if layer == 0 else w_above[layer - 1])
                getattr(module, f"weight_hh_l{layer}").copy_(r[layer])
                getattr(module, f"bias_ih_l{layer}").copy_(bias[layer])
                getattr(module, f"bias_hh_l{layer}").zero_()
        y, (h, c) = module(x)
    return y, h, c


_FUNCTIONS = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def _max_pool2d(shape, x):
    options = {"kernel_size": (shape["tall"], shape["wide"]), "stride": shape["stride"], "padding": shape["padding"]}
    x = _FUNCTIONS[shape["activation"]](x)
    if shape["layout"] == "nchw":
        return F.max_pool2d(x, **options)
    return F.max_pool2d(x.permute(0, 3, 1, 2), **options).permute(0, 2, 3, 1)


def _cnn(shape, images, conv1, conv2, weight, bias):
    """The classifier of `kernelgate cnn`: channels inside all along, as the weights lie."""
    activation, inside = _FUNCTIONS[shape["activation"]], (0, 3, 1, 2)
    x = images.view(-1, 1, shape["side"], shape["side"])
    for filters in (conv1, conv2):
        x = F.max_pool2d(activation(F.conv2d(x, filters.permute(inside), padding=1)), 2)
    x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)
    return F.log_softmax(F.linear(x, weight, bias), dim=-1)


def _chain(shape, x, projection, weight, bias):
    x = torch.softmax(x @ projection, dim=-1)
    return F.layer_norm(x, (shape["cols"],), weight, bias, 1e-5)


def _bmm(shape, a, b):
    return torch.bmm(a.mT if shape["transposed_a"] else a, b.mT if shape["transposed_b"] else b)


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
    "log_softmax": lambda shape, x: F.log_softmax(x, dim=-1),
    "row_sum": lambda shape, x: x.sum(dim=-1),
    "row_mean": lambda shape, x: x.mean(dim=-1),
    "rope": _rope,
    "gemm": lambda shape, a, b: a @ b,
    "bmm": _bmm,
    "gemv": lambda shape, x, w: F.linear(x, w),
    "linear": _linear,
    "attention": _attention,
    "attention_decode": _attention,
    "attention_paged": _attention_paged,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "cnn": _cnn,
    "chain": _chain,
    "embedding": lambda shape, table, ids: F.embedding(ids, table),
    "lstm": _lstm,
}


# A layer with the epilogue that cuBLASLt has for it.
EPILOGUE = {"linear": _linear_in_one_launch}


def attention_by(backend):
    """Attention by one back end of PyTorch: FLASH_ATTENTION or CUDNN_ATTENTION. It refuses what it does not serve."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attention(shape, q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return _attention(shape, q, k, v)

    return {"attention": attention, "attention_decode": attention}


def compiled(mode=None):
    """The same under torch.compile: one compilation a shape. Launches are recorded in graphs by the peer itself."""
    # Past the limit torch.compile falls back to eager code without a word.
    for limit in ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit", "accumulated_cache_size_limit"):
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 1 << 20)
    return {name: torch.compile(function, dynamic=False, mode=mode) for name, function in EAGER.items()}


def liger():
    """What Liger has, by its autograd functions, with the settings that its modules use for Llama."""
    from liger_kernel import ops

    def swiglu(shape, gate, up):
        # Its kernel takes rows of at most 65,536 elements; elementwise work may be cut anywhere.
        width = 1024 if gate.numel() % 1024 == 0 else gate.numel()
        return ops.LigerSiLUMulFunction.apply(gate.view(-1, width), up.view(-1, width)).view(gate.shape)

    operators = {
        "layernorm": lambda shape, *inputs: ops.LigerLayerNormFunction.apply(*inputs, shape["eps"]),
        "rmsnorm": lambda shape, *inputs: ops.LigerRMSNormFunction.apply(*inputs, shape["eps"], 0.0, "llama", False),
        "softmax": lambda shape, x: ops.LigerSoftmaxFunction.apply(x),
        "swiglu": swiglu,
    }
    if hasattr(ops, "LigerFusedAddRMSNormFunction"):
        operators["add_rmsnorm"] = lambda shape, *inputs: ops.LigerFusedAddRMSNormFunction.apply(
            *inputs, shape["eps"], 0.0, "llama", False
        )
    return operators
