"""Compiles a Triton program ahead of time, without a GPU: its PTX, and the metadata that `Cuda::triton` reads.

    python ahead_of_time.py add.py:add_kernel --signature "x=*f32:16, y=*f32:16, out=*f32:16, n=i32, BLOCK=1024" --arch 90

writes add_kernel.ptx and add_kernel.json. The signature names every parameter, in any order: `*f32` is a pointer to a
tensor, `i32` a scalar, `:16` says that an address or a number is a multiple of 16, and a number is the value of a
`tl.constexpr`. Needs `pip install triton` alone. A file in Triton's own cache, after a run on a GPU, serves as well.
"""

import argparse
import importlib.util
import json
import os
import sys

os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "0")

DTYPES = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}


def value(text):
    """The value of a constant."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    known = {"True": True, "False": False, "None": None}
    return known[text] if text in known else text.strip("'\"")


def signature(text, names):
    """Types, constants and attributes as Triton's compiler takes them."""
    types, constants, attributes = {}, {}, {}
    given = dict(part.strip().split("=", 1) for part in text.split(","))
    unknown, absent = set(given) - set(names), set(names) - set(given)
    if unknown or absent:
        sys.exit(f"--signature: not parameters of the program: {sorted(unknown)}; not given: {sorted(absent)}")
    for at, name in enumerate(names):
        kind, _, multiple = given[name].partition(":")
        scalar = kind.lstrip("*")
        is_type = kind != scalar or scalar in DTYPES or scalar in ("bf16", *(f"{sign}{bits}" for sign in "iu" for bits in (1, 8, 16, 32, 64)))
        if not is_type:
            types[name] = "constexpr"
            constants[name] = value(given[name])
            continue
        types[name] = kind[: len(kind) - len(scalar)] + DTYPES.get(scalar, scalar)
        if multiple:
            attributes[(at,)] = [["tt.divisibility", int(multiple)]]
    return types, constants, attributes


def load(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(os.path.basename(path).removesuffix(".py"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="FILE:FUNCTION")
    parser.add_argument("--signature", required=True)
    parser.add_argument("--arch", type=int, default=80, help="80 runs on every later GPU; 90 uses what Hopper alone has")
    parser.add_argument("--num-warps", type=int, default=4)
    parser.add_argument("--num-stages", type=int, default=3)
    parser.add_argument("--num-ctas", type=int, default=1)
    parser.add_argument("--ptx-version", type=int, default=88, help="88 is read by drivers from CUDA 12.9 on")
    parser.add_argument("--out", default=".", help="the folder to write to")
    parser.add_argument("--name", help="of the two files; that of the function if it is not given")
    asked = parser.parse_args()

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path, _, name = asked.program.rpartition(":")
    function = getattr(load(path), name)
    types, constants, attributes = signature(asked.signature, function.arg_names)
    options = {
        "num_warps": asked.num_warps,
        "num_stages": asked.num_stages,
        "num_ctas": asked.num_ctas,
        "ptx_version": asked.ptx_version,
        "enable_fp_fusion": True,
    }
    source = ASTSource(function, types, constants, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", asked.arch, 32), options=options)
    kept = ("name", "num_warps", "num_ctas", "shared", "global_scratch_size", "profile_scratch_size")
    metadata = {field: getattr(made.metadata, field) for field in kept if hasattr(made.metadata, field)}
    metadata |= {"arch": asked.arch, "triton": triton.__version__, "signature": asked.signature}
    os.makedirs(asked.out, exist_ok=True)
    stem = os.path.join(asked.out, asked.name or name)
    with open(stem + ".ptx", "w") as file:
        file.write(made.asm["ptx"])
    with open(stem + ".json", "w") as file:
        file.write(json.dumps(metadata, indent=2) + "\n")
    print(f"{stem}.ptx, {stem}.json: {metadata['num_warps']} warps, {metadata['shared']} bytes of shared memory")


main()
