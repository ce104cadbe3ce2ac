"""A decoder of the Llama class with a static cache in plain PyTorch, random weights in bf16: what `kernelgate llm` is measured
beside on a GPU, eager and under torch.compile (max-autotune, in CUDA graphs).

    python peers/llm_torch.py [--ways eager,compiled] [--batches 1,16,64] [--prompts 128,512] [--tokens 128]

Prints a line of JSON for each way, batch and prompt: the time to the first token and of each further one, in ms.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

# TinyLlama-1.1B.
HIDDEN, INNER, LAYERS, HEADS, KEY_HEADS, DIM, VOCABULARY = 2048, 5632, 22, 32, 4, 64, 32000


class Layer(torch.nn.Module):
    def __init__(self, batch, capacity):
        super().__init__()
        linear = lambda k, n: torch.nn.Linear(k, n, bias=False)
        self.qkv = linear(HIDDEN, (HEADS + 2 * KEY_HEADS) * DIM)
        self.o = linear(HEADS * DIM, HIDDEN)
        self.gate_up, self.down = linear(HIDDEN, 2 * INNER), linear(INNER, HIDDEN)
        self.norm1, self.norm2 = torch.nn.RMSNorm(HIDDEN, eps=1e-5), torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.register_buffer("keys", torch.zeros(batch, KEY_HEADS, capacity, DIM))
        self.register_buffer("values", torch.zeros(batch, KEY_HEADS, capacity, DIM))

    def forward(self, x, positions, cos, sin, mask):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split([HEADS * DIM, KEY_HEADS * DIM, KEY_HEADS * DIM], -1)
        heads = lambda x: x.view(batch, tokens, -1, DIM).transpose(1, 2)
        turn = lambda x: x * cos + torch.cat([-x[..., DIM // 2 :], x[..., : DIM // 2]], -1) * sin
        q, k = turn(heads(q)), turn(heads(k))
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, heads(v))
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, heads(v), is_causal=True, enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, tokens, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(torch.nn.Module):
    def __init__(self, batch, capacity):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer(batch, capacity) for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(HIDDEN, eps=1e-5)
        self.output = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(capacity), 10000.0 ** -(torch.arange(DIM // 2) * 2 / DIM))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())
        self.register_buffer("order", torch.arange(capacity))

    def run(self, tokens, positions, mask):
        x = self.embedding(tokens)
        cos, sin = self.cos[positions], self.sin[positions]
        for layer in self.layers:
            x = layer(x, positions, cos, sin, mask)
        return self.output(self.norm(x[:, -1])).argmax(-1, keepdim=True)

    def prefill(self, tokens, positions):
        return self.run(tokens, positions, None)

    def decode(self, token, position):
        return self.run(token, position, (self.order <= position)[None, None, None])


def measure(way, batch, prompt, tokens, repeats):
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Decoder(batch, prompt + tokens).to(torch.bfloat16).eval().requires_grad_(False)
        text = torch.randint(VOCABULARY, (batch, prompt))
    prefill, decode = model.prefill, model.decode
    if way == "compiled":
        # The prompt without a graph: it is run once a text, and its inputs are long.
        prefill = torch.compile(prefill, dynamic=False)
        decode = torch.compile(decode, mode="max-autotune", dynamic=False, fullgraph=True)
    positions = torch.arange(prompt, device="cuda")
    position = torch.empty(1, dtype=torch.long, device="cuda")
    first, each = [], []
    for repeat in range(repeats + 2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        token = prefill(text, positions).clone()
        token[0].item()
        ended = time.perf_counter()
        if repeat >= 2:
            first.append((ended - begun) * 1e3)
        for step in range(tokens - 1):
            begun = time.perf_counter()
            position.fill_(prompt + step)
            token = decode(token, position).clone()
            token[0].item()
            if repeat >= 2:
                each.append((time.perf_counter() - begun) * 1e3)
    each.sort()
    at = lambda p: each[int(p * (len(each) - 1))]
    line = {"way": way, "batch": batch, "prompt": prompt, "tokens": tokens, "first_token_ms": statistics.median(first)}
    line |= {"p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99), "torch": torch.__version__}
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", default="eager,compiled")
    parser.add_argument("--batches", default="1,16,64")
    parser.add_argument("--prompts", default="128,512")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    numbers = lambda text: [int(number) for number in text.split(",")]
    with torch.inference_mode():
        for way in arguments.ways.split(","):
            for batch in numbers(arguments.batches):
                for prompt in numbers(arguments.prompts):
                    torch._dynamo.reset()
                    measure(way, batch, prompt, arguments.tokens, arguments.repeats)


main()
