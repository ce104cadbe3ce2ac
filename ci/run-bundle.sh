#!/usr/bin/env bash
# Runs the gate of this bundle and packs what it found. Needs an NVIDIA driver and nothing else.
#   ./run.sh [arguments of the gate]
# results.tar.gz then holds the summary, what the gate printed, and what belongs back in the repository: pending
# snapshots where a baseline changed, and the cases of failed property tests. `ci/accept.sh` brings those home.
set -uo pipefail
cd "$(dirname "$0")"

export KERNELGATE_ROOT="$PWD" KERNELGATE_CACHE="$PWD/kernels" INSTA_WORKSPACE_ROOT="$PWD"
export KERNELGATE_REQUIRE="${KERNELGATE_REQUIRE:-cuda}"
mkdir -p results
# Whoever runs the bundle owns its kernels: the gate takes machine code from nobody else.
if [ -d kernels ]; then
    [ "$(id -u)" != 0 ] || chown -R 0:0 kernels
    chmod -R go-w kernels
fi

bin/gate --device cuda --out results/summary.json "$@" | tee results/gate.txt
code="${PIPESTATUS[0]}"

{
    printf 'results\0'
    find snapshots -name '*.snap.new' -print0
    if [ -d regressions ]; then find regressions -name '*.txt' -print0; fi
} | tar --null --exclude='.*.lock' -czf results.tar.gz -T - || { echo "run.sh: results.tar.gz could not be written" >&2; exit 3; }
echo "packed: $PWD/results.tar.gz"
exit "$code"
