#!/usr/bin/env bash
# Runs other people's GPU code in the simulator, with packages from PyPI and no GPU, and writes docs/results/foreign.{json.xz,md}:
# the Triton kernels of Liger Kernel and flash-linear-attention under their own host code, compared with references in
# double precision, and whether the kernels that CUDA wheels carry as PTX can be simulated.
#   bash ci/foreign.sh [folder, default target/foreign]
# About 8 GB of downloads and an hour on two cores. `bash ci/foreign.sh smoke` is one comparison, for those who have the
# packages already.
set -euo pipefail
cd "$(dirname "$0")/.."
smoke=0
if [ "${1:-}" = smoke ]; then
    smoke=1
    shift
fi
folder=$(realpath -m "${1:-target/foreign}")
kernelgate=${KERNELGATE:-target/release/kernelgate}
venv=${KERNELGATE_FOREIGN_VENV:-$folder/venv}
mkdir -p "$folder"
if ! [ -x "$venv/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
fi
if ! "$venv/bin/python" -c 'import torch, triton, liger_kernel, transformers' 2>/dev/null; then
    "$venv/bin/python" -m pip install --quiet -r ci/foreign/requirements.txt
fi
if ! [ -x "$kernelgate" ]; then
    cargo build --release --bin kernelgate
fi
kernelgate=$(realpath "$kernelgate")
run() { (cd ci/foreign && PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -W ignore "$@"); }
if [ "$smoke" = 1 ]; then
    run run.py liger "$kernelgate" "$folder/smoke.json" --only swiglu
    # A spoilt kernel must be noticed.
    run run.py liger "$kernelgate" "$folder/planted.json" --only swiglu --plant
    exit
fi
failed=0
run run.py liger "$kernelgate" "$folder/liger.json" || failed=1
run run.py fla "$kernelgate" "$folder/fla.json" || failed=1
run run.py fla "$kernelgate" "$folder/fla-ieee.json" --ieee || failed=1
run run.py liger "$kernelgate" "$folder/planted.json" --plant || failed=1
run corpus.py "$kernelgate" "$folder" || failed=1
run table.py "$folder" "$PWD/docs/results"
exit "$failed"
