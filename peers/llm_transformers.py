"""Holds `kernelgate llm` against transformers on the CPU, in f32: the greedy tokens of five chats, and the time of a token,
both in one run and in turn.

    python peers/llm_transformers.py <folder> --kernelgate target/release/kernelgate [--tokens 64] [--threads 2]

Ends with 1 where tokens differ and the two best logits were not a tie (closer than 1e-3 of the largest).
"""

import argparse
import json
import subprocess
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--kernelgate", default="target/release/kernelgate")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
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
            command += ["--tokens", str(arguments.tokens), "--json"]
            got = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
            ours.append(got["run"]["token_ms"]["p50"])
            shares.append(got["run"].get("of_read_ceiling"))
            want = [token for token in want if token != model.config.eos_token_id]
            first = next((i for i, (a, b) in enumerate(zip(want, got["tokens"])) if a != b), None)
            if first is None and len(want) == len(got["tokens"]):
                print(f"same  {len(want)} tokens: {prompt}")
                continue
            at = min(len(want), len(got["tokens"])) - 1 if first is None else first
            tie = gaps[at] < 1e-3
            differ += not tie
            print(f"{'tie ' if tie else 'DIFF'}  at {at}, the two best are {gaps[at]:.2e} apart: {prompt}")
    theirs.sort()
    ours.sort()
    middle = lambda values: values[len(values) // 2]
    print(f"transformers {middle(theirs):.2f} ms a token, kernelgate {middle(ours):.2f}, shares of reading {shares}")
    sys.exit(1 if differ else 0)


main()
