"""flash-linear-attention's operators against the naive recurrences that its own package states, in double precision."""

import torch
import torch.nn.functional as F
from compare import Case

BATCH, LENGTH, HEADS, KEYS, VALUES = 1, 100, 2, 32, 32


def cases():
    from fla import ops

    def draw(*shape):
        return lambda dtype: torch.randn(shape).to(dtype).requires_grad_(True)

    def unit(dtype):
        return F.normalize(torch.randn(BATCH, LENGTH, HEADS, KEYS), dim=-1).to(dtype).requires_grad_(True)

    def gate(*shape):
        # Logarithms of decays between about 0.4 and 1.
        return lambda dtype: F.logsigmoid(torch.randn(shape) + 2).to(torch.float32).requires_grad_(True)

    def beta(dtype):
        return torch.rand(BATCH, LENGTH, HEADS).to(dtype).requires_grad_(True)

    def inputs(*makers):
        return lambda dtype: [maker(dtype) for maker in makers]

    q, k, v = draw(BATCH, LENGTH, HEADS, KEYS), draw(BATCH, LENGTH, HEADS, KEYS), draw(BATCH, LENGTH, HEADS, VALUES)
    by_head, by_key = gate(BATCH, LENGTH, HEADS), gate(BATCH, LENGTH, HEADS, KEYS)

    def recurrence(step):
        """The outputs of a state of keys by values that `step` carries from position to position."""

        def run(q, *others):
            state = torch.zeros(q.shape[0], q.shape[2], KEYS, VALUES, dtype=q.dtype)
            outputs = []
            for t in range(q.shape[1]):
                state = step(state, *(other[:, t] for other in others))
                outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * KEYS**-0.5, state))
            return torch.stack(outputs, 1)

        return run

    def outer(k, v):
        return torch.einsum("bhk,bhv->bhkv", k, v)

    linear = recurrence(lambda state, k, v: state + outer(k, v))
    scalar = recurrence(lambda state, k, v, g: state * g.exp()[..., None, None] + outer(k, v))
    vector = recurrence(lambda state, k, v, g: state * g.exp()[..., None] + outer(k, v))

    def delta(state, k, v, beta):
        known = torch.einsum("bhk,bhkv->bhv", k, state)
        return state + outer(k, (v - known) * beta[..., None])

    def gated_delta(state, k, v, g, beta):
        return delta(state * g.exp()[..., None, None], k, v, beta)

    def retention(q, k, v):
        decay = torch.log1p(-(2.0 ** (-5 - torch.arange(HEADS, dtype=q.dtype))))
        return scalar(q, k, v, decay.expand(BATCH, LENGTH, HEADS))

    def attention(q, k, v):
        scores = torch.einsum("bthd,bshd->bhts", q, k) * KEYS**-0.5
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        return torch.einsum("bhts,bshd->bthd", scores.masked_fill(later, float("-inf")).softmax(-1), v)

    def hgrn(x, g):
        state, outputs = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = g[:, t].exp() * state + x[:, t]
            outputs.append(state)
        return torch.stack(outputs, 1)

    def first(function):
        return lambda *given: function(*given)[0]

    # One product with TF32 factors is off by 2^-11 of its size; a chunk chains several, and a gradient twice as many. Without
    # TF32 (`run.py fla --ieee`) the same cases are held to that of a sequence.
    chunked = {"slack": 500.0, "because": "several products in TF32, one behind the other", "ieee_slack": 8.0}
    sequence = {"slack": 4.0, "because": "sums of 100 terms in sequence"}
    narrow = {"slack": 4.0, "because": "several products of factors rounded to 16 bits, one behind the other"}
    return [
        Case("fused_recurrent_gla", inputs(q, k, v, by_key), first(ops.fused_recurrent_gla), vector, ("f32",), **sequence),
        Case("chunk_gla", inputs(q, k, v, by_key), first(ops.chunk_gla), vector, ("f32",), **chunked),
        Case("chunk_simple_gla", inputs(q, k, v, by_head), first(ops.chunk_simple_gla), scalar, ("f32",), **chunked),
        Case("chunk_retention", inputs(q, k, v), first(ops.chunk_retention), retention, ("f32",), **chunked),
        Case(
            "chunk_linear_attn",
            inputs(q, k, v),
            first(lambda q, k, v: ops.chunk_linear_attn(q, k, v, normalize=False)),
            linear,
            ("f32",),
            **chunked,
        ),
        Case("fused_recurrent_delta_rule", inputs(q, unit, v, beta), first(ops.fused_recurrent_delta_rule), recurrence(delta), ("f32",), **sequence),
        Case("chunk_delta_rule", inputs(q, unit, v, beta), first(ops.chunk_delta_rule), recurrence(delta), ("bf16",), **narrow),
        Case(
            "chunk_gated_delta_rule",
            inputs(q, unit, v, by_head, beta),
            first(lambda q, k, v, g, beta: ops.chunk_gated_delta_rule(q, k, v, g, beta)),
            recurrence(gated_delta),
            ("f32",),
            # Its triangular inverse names TF32 itself, whatever the default is.
            **{**chunked, "ieee_slack": None},
        ),
        Case(
            "fused_recurrent_hgrn",
            inputs(draw(2, LENGTH, 64), gate(2, LENGTH, 64)),
            first(ops.fused_recurrent_hgrn),
            hgrn,
            ("f32",),
            **sequence,
        ),
        Case("parallel_attn", inputs(q, k, v), ops.parallel_attn, attention, ("f32",), **chunked),
    ]
