#!/usr/bin/env bash
# JUnit XML of the summaries below as another project's parser reads it (junitparser, from PyPI): every trial with its result.
#   bash ci/formats.sh
set -euo pipefail
cd "$(dirname "$0")/.."
program=${KERNELGATE:-target/release/kernelgate}
version=5.0.0
hash=9e279f2214dc74b6a86b22db757abda2e8e66e819fe882dad5b392d57024cd26
folder=${XDG_CACHE_HOME:-$HOME/.cache}/kernelgate/junitparser-$version
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
if [ ! -d "$folder" ]; then
    echo "junitparser==$version --hash=sha256:$hash" > "$work/requirements.txt"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --target "$work/package" --requirement "$work/requirements.txt"
    mkdir -p "$(dirname "$folder")"
    mv "$work/package" "$folder"
fi
for summary in tests/reports/data/every-kind.json tests/reports/data/failed.json docs/results/h200-gate.json; do
    "$program" report "$summary" --junit "$work/junit.xml"
    PYTHONPATH="$folder" python3 ci/junit.py "$summary" "$work/junit.xml"
done
