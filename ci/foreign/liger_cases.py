"""Liger Kernel's operators: which are compared, on which inputs, with which references."""

import torch
import torch.nn.functional as F
from compare import Case

ROWS, COLUMNS, VOCABULARY = 5, 200, 333


def cases():
    from liger_kernel.transformers import functional as liger

    def draw(*shape, grad=True, scale=1.0, shift=0.0):
        return lambda dtype: (torch.randn(shape) * scale + shift).to(dtype).requires_grad_(grad)

    def inputs(*makers):
        return lambda dtype: [maker(dtype) if callable(maker) else maker for maker in makers]

    x = draw(ROWS, COLUMNS)
    weight = draw(COLUMNS, shift=1.0)
    bias = draw(COLUMNS, scale=0.1)

    def rms(x, w, offset=0.0, eps=1e-6):
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * (w + offset)

    def geglu(a, b):
        return F.gelu(a, approximate="tanh") * b

    def rope(q, k, cos, sin):
        def turn(t):
            low, high = t.chunk(2, -1)
            return t * cos.unsqueeze(1) + torch.cat((-high, low), -1) * sin.unsqueeze(1)

        return turn(q), turn(k)

    def angles(width, length):
        def make(dtype):
            phases = torch.outer(torch.arange(length), 10000 ** (-torch.arange(0, width, 2) / width))
            phases = torch.cat((phases, phases), -1)[None]
            return [phases.cos().to(dtype), phases.sin().to(dtype)]

        return make

    def rope_inputs(dtype):
        heads = [draw(2, count, 7, 32)(dtype) for count in (4, 2)]
        return heads + angles(32, 7)(dtype)

    def mrope_inputs(dtype):
        heads = [draw(2, count, 7, 32)(dtype) for count in (4, 2)]
        halves = [draw(3, 2, 7, 16, grad=False)(dtype) for _ in range(2)]
        return heads + [torch.cat((half, half), -1) for half in halves]

    def mrope(q, k, cos, sin):
        section = [4, 6, 6] * 2
        cos, sin = [torch.cat([m[i % 3] for i, m in enumerate(t.split(section, -1))], -1) for t in (cos, sin)]
        return rope(q, k, cos, sin)

    def labels(dtype):
        target = torch.randint(0, VOCABULARY, (ROWS,))
        target[1] = -100
        return target

    logits = draw(ROWS, VOCABULARY, scale=2.0)

    def capped(cap, x):
        return cap * torch.tanh(x / cap)

    def z_loss(x, target, scale):
        lse = x.logsumexp(-1)
        return (scale * lse.square())[target != -100].mean()

    def softmaxed(dtype):
        return draw(ROWS, VOCABULARY)(torch.float32).detach().softmax(-1).to(dtype)

    def logged(dtype):
        return draw(ROWS, VOCABULARY)(torch.float32).detach().log_softmax(-1).to(dtype).requires_grad_(True)

    def jsd(beta):
        def loss(x, y):
            if beta == 0:
                return F.kl_div(x, y, reduction="batchmean", log_target=True)
            if beta == 1:
                return F.kl_div(y, x, reduction="batchmean", log_target=True)
            mixed = (beta * y.exp() + (1 - beta) * x.exp()).log()
            to = F.kl_div(mixed, y, reduction="batchmean", log_target=True)
            return beta * to + (1 - beta) * F.kl_div(mixed, x, reduction="batchmean", log_target=True)

        return loss

    def poly(x, w, b):
        def norm(u):
            return u * (u.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

        return w[0] * norm(x**3) + w[1] * norm(x**2) + w[2] * norm(x) + b

    def sparsemax(x):
        ordered, _ = x.sort(-1, descending=True)
        sums = ordered.cumsum(-1) - 1
        count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        support = (ordered * count > sums).sum(-1, keepdim=True)
        return (x - sums.gather(-1, support - 1) / support).clamp_min(0)

    def residual(v, query, norm):
        keys = rms(v, norm)
        weights = torch.einsum("d,nbtd->nbt", query, keys).softmax(0)
        return torch.einsum("nbt,nbtd->btd", weights, v)

    def tokens(scores, weight):
        length = scores.shape[-1]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = F.conv2d(scores.masked_fill(later, float("-inf")).softmax(-1), weight, padding=1)
        return mixed.masked_fill(later, 0.0)

    def add_rms(x, residual, w):
        total = x + residual
        return rms(total, w), total

    hidden, table = draw(ROWS, 64), draw(VOCABULARY, 64, scale=0.2)
    return [
        Case("rms_norm, Llama", inputs(x, weight), lambda x, w: liger.liger_rms_norm(x, w, 1e-6), rms),
        Case(
            "rms_norm, Gemma",
            inputs(x, bias),
            lambda x, w: liger.liger_rms_norm(x, w, 1e-6, 1.0, "gemma"),
            lambda x, w: rms(x, w, 1.0),
        ),
        Case(
            "rms_norm, out of place",
            inputs(draw(3, 4097), draw(4097, shift=1.0)),
            lambda x, w: liger.liger_rms_norm(x, w, 1e-6, 0.0, "llama", False),
            rms,
        ),
        Case(
            "modulated_rms_norm",
            inputs(x, weight, draw(ROWS, COLUMNS, scale=0.3), draw(ROWS, COLUMNS)),
            lambda x, w, scale, shift: liger.liger_modulated_rms_norm(x, w, scale, shift),
            lambda x, w, scale, shift: rms(x, w) * (1 + scale) + shift,
        ),
        Case("fused_add_rms_norm", inputs(x, x, weight), lambda x, r, w: liger.liger_fused_add_rms_norm(x, r, w, 1e-6), add_rms),
        Case(
            "layer_norm",
            inputs(x, weight, bias),
            lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-6),
            lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b, 1e-6),
        ),
        Case(
            "group_norm",
            inputs(draw(2, 6, 35), draw(6, shift=1.0), draw(6)),
            lambda x, w, b: liger.liger_group_norm(x, w, b, 6, 3, 1e-6),
            lambda x, w, b: F.group_norm(x, 3, w, b, 1e-6),
            slack=3.0,
            because="gradients of the weights are summed in the dtype",
        ),
        Case("poly_norm", inputs(x, draw(3), draw()), liger.liger_poly_norm, poly),
        Case(
            "dyt",
            inputs(x, draw(1, shift=0.5, scale=0.1), weight, bias),
            liger.liger_dyt,
            lambda x, alpha, gamma, beta: gamma * (alpha * x).tanh() + beta,
        ),
        Case("geglu", inputs(x, x), liger.liger_geglu, geglu),
        Case("swiglu", inputs(x, x), liger.liger_swiglu, lambda a, b: F.silu(a) * b),
        Case("relu_squared", inputs(x), liger.liger_relu_squared, lambda x: F.relu(x).square()),
        Case("softmax", inputs(x), liger.liger_softmax, lambda x: x.softmax(-1)),
        Case("softmax, long rows", inputs(draw(2, 5000)), liger.liger_softmax, lambda x: x.softmax(-1)),
        Case("sparsemax", inputs(x), liger.liger_sparsemax, sparsemax),
        Case("rope", rope_inputs, liger.liger_rope, rope),
        Case("qwen2vl_mrope", mrope_inputs, lambda *a: liger.liger_qwen2vl_mrope(*a, [4, 6, 6]), mrope),
        Case("cross_entropy", inputs(logits, labels), liger.liger_cross_entropy, F.cross_entropy),
        Case(
            "cross_entropy, smoothed, with z loss",
            inputs(logits, labels),
            lambda x, t: liger.liger_cross_entropy(x, t, label_smoothing=0.1, lse_square_scale=1e-3),
            lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1) + z_loss(x, t, 1e-3),
        ),
        Case(
            "cross_entropy, capped, summed",
            inputs(logits, labels),
            lambda x, t: liger.liger_cross_entropy(x, t, softcap=5.0, reduction="sum"),
            lambda x, t: F.cross_entropy(capped(5.0, x), t, reduction="sum"),
        ),
        Case(
            "fused_linear_cross_entropy",
            inputs(hidden, table, labels),
            liger.liger_fused_linear_cross_entropy,
            lambda x, w, t: F.cross_entropy(x @ w.T, t),
            slack=2.0,
            because="the logits are stored in the dtype of the inputs, and summed over from there",
        ),
        Case(
            "kl_div",
            inputs(logged, softmaxed),
            lambda x, y: liger.liger_kl_div(x, y, reduction="batchmean"),
            lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        ),
        Case(
            "kl_div, logarithmic target",
            inputs(logged, lambda dtype: logged(dtype).detach()),
            lambda x, y: liger.liger_kl_div(x, y, reduction="sum", log_target=True),
            lambda x, y: F.kl_div(x, y, reduction="sum", log_target=True),
        ),
        Case("jsd", inputs(logged, lambda dtype: logged(dtype).detach()), liger.liger_jsd, jsd(0.5)),
        Case("jsd, beta 0.1", inputs(logged, lambda dtype: logged(dtype).detach()), lambda x, y: liger.liger_jsd(x, y, beta=0.1), jsd(0.1), slack=2.0, because="gradients are rounded to the dtype twice"),
        Case(
            "tvd",
            inputs(lambda dtype: softmaxed(dtype).requires_grad_(True), softmaxed),
            lambda x, y: liger.liger_tvd(x, y, reduction="batchmean"),
            lambda x, y: 0.5 * (x - y).abs().sum() / ROWS,
        ),
        Case(
            "attn_res",
            inputs(draw(4, 2, 3, COLUMNS), draw(COLUMNS, scale=0.1), weight),
            liger.liger_attn_res,
            residual,
            slack=3.0,
            because="keys are rounded to the dtype before they are weighted and once more behind it",
        ),
        Case("multi_token_attention", inputs(draw(1, 2, 16, 16), draw(2, 2, 3, 3)), lambda s, w: liger.liger_multi_token_attention(s, w, padding=1), tokens, slack=2.0, because="probabilities are rounded to the dtype before the convolution"),
    ]
