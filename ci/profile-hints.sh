#!/bin/bash
# Hints of loops on the CPU that the catalogue has something better for: predicted beside realised, as Markdown.
#   bash ci/profile-hints.sh [SUMMARY]     the profiles go to that summary [default: target/kernelgate/profile-hints.json]
# The host must be calibrated: `kernelgate calibrate --device cpu`.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-target/kernelgate/profile-hints.json}
program=${KERNELGATE:-target/release/kernelgate}
rm -f "$out"
while read -r candidate shape; do
    "$program" profile "$candidate" --shape "$shape" --device cpu --hot --apply --repeats 15 --out "$out" > /dev/null
done <<'END'
swiglu::naive::f32 n=1048576
gelu::naive::f32 n=262144
silu::naive::f32 n=262144
layernorm::naive::f32 rows=256,cols=1024
rmsnorm::naive::f32 rows=256,cols=1024
softmax::naive::f32 rows=256,cols=1024
row_sum::naive::f32 rows=512,cols=2048
attention_cached::naive::f32 batch=1,heads=3,group=3,queries=8,past=120,dim=64
chain::naive::f32 rows=64,inner=256,cols=1024
END
python3 - "$out" <<'END'
import json, lzma, sys
print("| what | hint | predicted µs | realised µs | realised / predicted | by |")
print("|---|---|---:|---:|---:|---|")
read = lzma.open if sys.argv[1].endswith(".xz") else open
for profile in json.load(read(sys.argv[1]))["profiles"]:
    for hint in profile.get("hints", []):
        if "applied" in hint:
            realised = hint["applied"]["before_us"] - hint["applied"]["after_us"]
            print(f"| {hint['place']} | {hint['action']} | {hint['gain_us']:.1f} | {realised:.1f} | {realised / hint['gain_us']:.2f} | {hint['basis']} |")
END
