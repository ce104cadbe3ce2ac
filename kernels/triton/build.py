"""Compiles the programs of this folder ahead of time; needs no GPU: pip install triton==3.9.0 numpy, then python build.py

For each operator and architecture it writes ptx/<operator>.<arch>.ptx.xz, one module with an entry a variant and dtype, and
ptx/<operator>.<arch>.json, which says how to launch each entry and holds the hashes of source and PTX; a test compares
them. Arguments name operators, to make only those, or another architecture: what is committed is for sm_80, which every
later GPU runs; for sm_90a the compiler makes the same accesses and nearly the same instructions of these programs.

An entry takes the pointers of its tensors, its scalars, and two more pointers that Triton adds for scratch memory; these
programs use none and get null.
"""

import hashlib
import importlib
import json
import lzma
import os
import re
import struct
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Line information would name the place of this folder.
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

OPERATORS = {
    "gelu": ["gelu.py"],
    "silu": ["silu.py"],
    "relu": ["relu.py"],
    "softmax": ["softmax.py", "rows.py"],
    "layernorm": ["layernorm.py", "normalise.py", "rows.py"],
    "layernorm_gelu": ["layernorm_gelu.py", "normalise.py", "rows.py"],
    "gemm": ["gemm.py"],
    "attention": ["attention.py"],
}
DTYPES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
ARCHS = {"sm_80": 80, "sm_90a": 90}
# Read by drivers from CUDA 12.9 on; left to itself, Triton writes the newest version that its own assembler knows.
PTX_VERSION = 88
FORMAT = 1
# What would need more than a new name for the entry.
OTHERS = (".extern", ".global", ".const", ".func", ".section")
SHARED = ".extern .shared .align 16 .b8 global_smem[];"


def digest(parts):
    """The SHA-256 of several byte strings, each preceded by its length."""
    state = hashlib.sha256()
    for part in parts:
        state.update(struct.pack("<Q", len(part)) + part)
    return state.hexdigest()


def read(name):
    with open(os.path.join(FOLDER, name), "rb") as file:
        return file.read()


def compile_variant(module, variant, dtype, capability):
    program, constants = variant["program"], variant["constants"]
    types = {tensor: "*" + DTYPES[dtype] for tensor in module.TENSORS} | module.SCALARS
    # Buffers start on 16 bytes; the extents that the variant is made for are multiples of 16 or anything.
    divisible = list(range(len(module.TENSORS)))
    if variant["divisor"] == 16:
        divisible += [list(types).index(extent) for extent in module.ALIGNED]
    attributes = {(i,): [["tt.divisibility", 16]] for i in divisible}
    signature = types | {constant: "constexpr" for constant in constants}
    source = ASTSource(program, signature, constants, attributes)
    options = {"num_warps": variant["warps"], "ptx_version": PTX_VERSION, "enable_fp_fusion": True}
    if "stages" in variant:
        options["num_stages"] = variant["stages"]
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def uses(text, name):
    return len(re.findall(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text))


def body(text, kernel, entry, number):
    """The entry of a module under its new name, without comments, debug marks and the module's header."""
    text = re.sub(r"//[^\n]*", "", text)
    kept = []
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith((".version", ".target", ".address_size", ".file", ".loc", "$L__tmp", "$L__func")):
            kept.append(line)
    if SHARED in kept:
        kept.remove(SHARED)
    # The name of a compiler flag, which libdevice leaves behind and nothing reads.
    kept = [line for line in kept if not (line.startswith(".global") and uses(text, line.split()[4].split("[")[0]) == 1)]
    if any(line.startswith(OTHERS) for line in kept):
        raise SystemExit(f"{entry}: the module holds more than its entry: {[line for line in kept if line.startswith(OTHERS)]}")
    text = "\n".join(kept)
    text = re.sub(rf"\b{kernel}(?=\(|_param_)", entry, text)
    return text.replace("$L__BB0_", f"$L__BB{number}_")


def build(operator, arch):
    module = importlib.import_module(operator)
    entries, bodies, header = [], [], None
    for variant in module.VARIANTS:
        for dtype in getattr(module, "DTYPES", DTYPES):
            made = compile_variant(module, variant, dtype, ARCHS[arch])
            metadata = made.metadata
            if metadata.global_scratch_size or metadata.profile_scratch_size:
                raise SystemExit(f"{operator}: a program that needs scratch memory")
            size = "x".join(str(constant) for constant in variant["constants"].values())
            kernel = variant["program"].fn.__name__
            entry = f"{kernel}_{size}_{'whole' if variant['divisor'] == 16 else 'any'}_{dtype}"
            entries.append(
                {
                    "name": entry,
                    "dtype": dtype,
                    "up_to": variant["up_to"],
                    "divisor": variant["divisor"],
                    "per_program": variant["per_program"],
                    "warps": metadata.num_warps,
                    "shared_bytes": metadata.shared,
                    "constants": variant["constants"],
                }
            )
            text = made.asm["ptx"]
            lines = [line for line in text.splitlines() if line.startswith((".version", ".target", ".address_size"))]
            if header not in (None, lines):
                raise SystemExit(f"{entry}: another header than the entries before")
            header = lines
            bodies.append(body(text, kernel, entry, len(bodies)))
    text = "\n".join(header + [SHARED] * any("global_smem" in text for text in bodies) + bodies) + "\n"
    sources = OPERATORS[operator]
    record = {
        "format": FORMAT,
        "operator": operator,
        "arch": arch,
        "triton": triton.__version__,
        "sources": sources,
        "source_hash": digest([read(name) for name in sources + ["build.py"]]),
        "ptx_hash": digest([text.encode()]),
        "arguments": module.TENSORS + list(module.SCALARS) + ["global_scratch", "profile_scratch"],
        "entries": entries,
    }
    folder = os.path.join(FOLDER, "ptx")
    os.makedirs(folder, exist_ok=True)
    with lzma.open(os.path.join(folder, f"{operator}.{arch}.ptx.xz"), "w", preset=9 | lzma.PRESET_EXTREME) as file:
        file.write(text.encode())
    with open(os.path.join(folder, f"{operator}.{arch}.json"), "w") as file:
        rows = ",\n    ".join(json.dumps(entry) for entry in record.pop("entries"))
        head = ",\n  ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
        file.write(f'{{\n  {head},\n  "entries": [\n    {rows}\n  ]\n}}\n')
    print(operator, arch, len(entries), "entries,", len(text), "bytes")


if __name__ == "__main__":
    asked = sys.argv[1:]
    architectures = [name for name in asked if name in ARCHS] or ["sm_80"]
    for wanted in [name for name in asked if name not in ARCHS] or OPERATORS:
        for architecture in architectures:
            build(wanted, architecture)
