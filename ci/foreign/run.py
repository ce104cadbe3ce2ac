"""Runs the comparisons of one library and writes its rows as JSON.

    python run.py liger|fla <kernelgate> <result.json> [--only WORD] [--ieee] [--plant]
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import sys

import driver
from compare import compare

# Distributions whose versions a result depends on.
OF = {"liger": ["liger-kernel"], "fla": ["fla-core", "flash-linear-attention"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("package", choices=OF)
    parser.add_argument("command")
    parser.add_argument("result")
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--ieee", action="store_true", help="products of f32 without TF32")
    parser.add_argument("--plant", action="store_true", help="spoil each kernel: no comparison may be right")
    asked = parser.parse_args()
    if asked.ieee:
        os.environ["TRITON_F32_DEFAULT"] = "ieee"
    launches = driver.install(asked.command)
    launches.spoils = asked.plant
    rows = []
    for case in importlib.import_module(f"{asked.package}_cases").cases():
        chosen = asked.only in case.name and (not asked.ieee or "f32" in case.dtypes)
        for dtype in case.dtypes if chosen else ():
            row = compare(case, dtype, launches, asked.ieee)
            rows.append(row)
            print(f"{row['verdict']:>9}  {case.name}, {dtype}: {row['worst']}, {row['seconds']} s  {row['why'][:200]}", flush=True)
            for finding in row["findings"][:1]:
                print(f"           {finding[:200]}", flush=True)
    right = sum(row["verdict"] == "right" for row in rows)
    names = OF[asked.package] + ["torch", "triton"]
    account = {
        "library": asked.package,
        "ieee": asked.ieee,
        "versions": {name: importlib.metadata.version(name) for name in names},
        "comparisons": len(rows),
        "right": right,
        "rows": rows,
    }
    with open(asked.result, "w") as file:
        json.dump(account, file, indent=1)
    print(f"{right} of {len(rows)} right")
    good = right == 0 if asked.plant else right == len(rows)
    sys.stdout.flush()
    launches.close()
    os._exit(0 if rows and good else 1)


main()
