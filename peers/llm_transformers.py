"""Holds `kernelgate llm` against transformers in f32: the greedy tokens of five chats, the time of a token, both in one run and
in turn, and the perplexity of a text.

    python peers/llm_transformers.py <folder> --kernelgate target/release/kernelgate [--tokens 64] [--threads 2]
        [--text fixtures/models/text.txt] [--device cpu|cuda] [--dtype f32|f16|bf16] [--way W]

Device, dtype and way are kernelgate's; transformers computes in f32 on the CPU. Ends with 1 where tokens differ and the two best
logits were not a tie, and where the perplexities are further apart than 0.1 %, in a narrow type than 1 %. A tie is closer than
1e-3 of the largest logit, in a narrow type than the roundings of all steps: 3 sqrt(steps) half ulps.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# Of --text: positions that a prediction can see, and how much further on each window begins.
WINDOW, STRIDE = 512, 256

PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain what a cache is to a child.",
    "Name three uses of copper.",
    "How many legs has a spider, and why?",
]


def decode(model, ids, tokens):
    """Greedy tokens, the time of each step in ms, and how far the two best logits are apart."""
    times, written, gaps, cache = [], [], [], None
    step = ids
    for _ in range(tokens):
        begun = time.perf_counter()
        out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits = out.logits[0, -1]
        token = int(logits.argmax())
        times.append((time.perf_counter() - begun) * 1e3)
        best = logits.topk(2).values
        gaps.append(float((best[0] - best[1]) / logits.abs().max()))
        written.append(token)
        if token == model.config.eos_token_id:
            break
        step = torch.tensor([[token]])
    return written, times, gaps


def perplexity(model, ids):
    """Every token but the first counts once, in the first window that predicts it."""
    judged, sum_nll, start = 1, 0.0, 0
    while judged < len(ids):
        end = min(start + WINDOW, len(ids))
        logits = model(torch.tensor([ids[start:end]])).logits[0].double().log_softmax(-1)
        sum_nll -= sum(float(logits[at - 1 - start, ids[at]]) for at in range(judged, end))
        judged, start = end, start + STRIDE
    return float(torch.tensor(sum_nll / (len(ids) - 1)).exp())


def same_perplexity(arguments, model, tokenizer):
    text = pathlib.Path(arguments.text).read_text()
    theirs = perplexity(model, tokenizer(text).input_ids)
    command = [arguments.kernelgate, "llm", "--model", arguments.folder, "--perplexity", arguments.text, "--json"]
    command += ["--window", str(WINDOW), "--stride", str(STRIDE), *placed(arguments)]
    ours = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    apart = abs(ours["perplexity"] / theirs - 1)
    print(f"perplexity over {ours['tokens']} tokens: transformers {theirs:.5f}, kernelgate {ours['perplexity']:.5f}, {apart:.1e}")
    return apart <= (1e-3 if arguments.dtype == "f32" else 1e-2)


def placed(arguments):
    """Where and how kernelgate computes, as its options."""
    way = ["--way", arguments.way] if arguments.way else []
    return ["--device", arguments.device, "--dtype", arguments.dtype, *way]


def tie_limit(dtype, layers):
    """How close the two best logits are, of the largest, where either may win: of a step each layer has 15."""
    half_ulp = {"f32": None, "f16": 2**-11, "bf16": 2**-8}[dtype]
    return 1e-3 if half_ulp is None else 3 * (15 * layers + 3) ** 0.5 * half_ulp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--kernelgate", default="target/release/kernelgate")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text", default="fixtures/models/text.txt")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["f32", "f16", "bf16"], default="f32")
    parser.add_argument("--way")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.float32).eval()
    differ, theirs, ours, shares = 0, [], [], []
    with torch.inference_mode():
        for prompt in PROMPTS:
            text = tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
            )
            ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
            want, times, gaps = decode(model, ids, arguments.tokens)
            theirs += times[1:]
            command = [arguments.kernelgate, "llm", "--model", arguments.folder, "--prompt", prompt, "--chat"]
            command += ["--tokens", str(arguments.tokens), "--json", *placed(arguments)]
            got = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
            ours.append(got["run"]["token_ms"]["p50"])
            shares.append(got["run"].get("of_read_ceiling"))
            want = [token for token in want if token != model.config.eos_token_id]
            first = next((i for i, (a, b) in enumerate(zip(want, got["tokens"])) if a != b), None)
            if first is None and len(want) == len(got["tokens"]):
                print(f"same  {len(want)} tokens: {prompt}")
                continue
            at = min(len(want), len(got["tokens"])) - 1 if first is None else first
            tie = gaps[at] < tie_limit(arguments.dtype, model.config.num_hidden_layers)
            differ += not tie
            print(f"{'tie ' if tie else 'DIFF'}  at {at}, the two best are {gaps[at]:.2e} apart: {prompt}")
        differ += not same_perplexity(arguments, model, tokenizer)
    theirs.sort()
    ours.sort()
    middle = lambda values: values[len(values) // 2]
    print(f"transformers {middle(theirs):.2f} ms a token, kernelgate {middle(ours):.2f}, shares of reading {shares}")
    sys.exit(1 if differ else 0)


main()
