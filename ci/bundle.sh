#!/usr/bin/env bash
# Builds bundle/: everything a GPU machine with only the driver needs to run the gate. Neither Rust nor a CUDA toolkit
# is needed there: kernels travel as machine code for every architecture in KERNELGATE_ARCHS.
#   bash ci/bundle.sh          then, there:   ./bundle/run.sh
set -euo pipefail
cd "$(dirname "$0")/.."

archs="${KERNELGATE_ARCHS:-sm_80,sm_90a}"
bash ci/setup-cuda.sh

rm -rf bundle
mkdir -p bundle/bin bundle/ci
export KERNELGATE_CACHE="$PWD/bundle/kernels"

cargo build --release --bin kernelgate
# The executables of the test targets that run on a GPU, by the names that cargo gives them.
cargo test --release --no-run --message-format=json --test gate --test faults --test cuda \
    | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("profile", {}).get("test") and message.get("executable"):
        print(message["target"]["name"], message["executable"])' \
    | while read -r name executable; do
        strip -o "bundle/bin/$name" "$executable"
    done
target="$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')"
strip -o bundle/bin/kernelgate "$target/release/kernelgate"

for name in gate faults cuda; do
    "bundle/bin/$name" --compile "$archs"
done
cp -r snapshots fixtures bundle/
cp -r kernels/ptx bundle/kernels/
# Neither what was built nor what was proposed here belongs to another machine.
rm -rf bundle/fixtures/user/target
find bundle/snapshots -name '*.snap.new' -delete
if [ -d regressions ]; then cp -r regressions bundle/; fi
cp ci/run-bundle.sh bundle/run.sh
cp ci/gpu.sh bundle/ci/
git rev-parse HEAD > bundle/revision 2>/dev/null || true
du -sh bundle
