#!/usr/bin/env bash
# Runs the gate of this bundle and packs what it found. Needs an NVIDIA driver and nothing else.
#   ./run.sh [arguments of the gate]
# results.tar.gz then holds the summary, and the pending snapshots for `ci/accept.sh` where a baseline changed.
set -uo pipefail
cd "$(dirname "$0")"

export KERNELGATE_ROOT="$PWD" KERNELGATE_CACHE="$PWD/kernels" INSTA_WORKSPACE_ROOT="$PWD"
export KERNELGATE_REQUIRE="${KERNELGATE_REQUIRE:-cuda}"
mkdir -p results
bin/gate --device cuda --out results/summary.json "$@"
code=$?
find snapshots -name '*.snap.new' -print0 | tar --null -czf results.tar.gz -T - results 2>/dev/null
exit "$code"
