#!/usr/bin/env bash
# The gate on a machine with a GPU: from a checkout (Rust installed), or from a bundle (only the driver needed).
# Goes red when there is no GPU or no baseline for it: a skip is not a pass here. Arguments go to the gate.
set -euo pipefail
cd "$(dirname "$0")/.."

export KERNELGATE_REQUIRE="${KERNELGATE_REQUIRE:-cuda,baseline}"
if [ -x bin/gate ]; then
    exec ./run.sh "$@"
fi
out="${KERNELGATE_OUT:-target/kernelgate/summary.json}"
bash ci/setup-cuda.sh
cargo test --release --test gate -- --device cuda --out "$out" "$@"
