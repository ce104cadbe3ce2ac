#!/usr/bin/env bash
# JUnit XML of the summaries below as another project's parser reads it (junitparser, from PyPI): every trial with its result.
#   bash ci/formats.sh
set -euo pipefail
cd "$(dirname "$0")/.."
program=${KERNELGATE:-target/release/kernelgate}
. ci/wheel.sh
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
# A wheel can be imported as it is.
parser=$(wheel "$work" junitparser 5.0.0 9e279f2214dc74b6a86b22db757abda2e8e66e819fe882dad5b392d57024cd26)
for summary in tests/reports/data/every-kind.json tests/reports/data/failed.json docs/results/h200-gate.json.xz; do
    "$program" report "$summary" --junit "$work/junit.xml"
    PYTHONPATH="$parser" python3 ci/junit.py "$summary" "$work/junit.xml"
done
