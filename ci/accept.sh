#!/usr/bin/env bash
# Brings the results of a bundle home: pending snapshots into snapshots/, to be looked at with `cargo insta review`, and
# the cases of failed property tests into regressions/, where the next run replays them.
#   bash ci/accept.sh results.tar.gz [--all]      --all accepts the snapshots without asking
set -euo pipefail
usage="usage: bash ci/accept.sh results.tar.gz [--all]"
archive="$(realpath "${1:?$usage}")"
if [ -n "${2:-}" ] && [ "$2" != --all ]; then
    echo "$usage" >&2
    exit 2
fi
cd "$(dirname "$0")/.."

# Only these two kinds of file, only below their folders: an archive is not trusted further than that.
listed="$(tar -tzf "$archive" | grep -v '\.\.' || true)"
snapshots="$(grep -E '^snapshots/[A-Za-z0-9_./-]+\.snap\.new$' <<<"$listed" || true)"
cases="$(grep -E '^regressions/[A-Za-z0-9_.-]+\.txt$' <<<"$listed" || true)"
if [ -z "$snapshots$cases" ]; then
    echo "no pending snapshots and no failed cases in $archive"
    exit 0
fi

if [ -n "$cases" ]; then
    mkdir -p regressions
    while read -r file; do
        # Lines that are known already, here or there, stand once.
        touch "$file"
        tar -xzOf "$archive" "$file" | awk '!seen[$0]++' "$file" - > "$file.new"
        mv "$file.new" "$file"
        echo "$file"
    done <<<"$cases"
    echo "the cases are replayed by the next run; commit them"
fi
if [ -n "$snapshots" ]; then
    tar -xzf "$archive" -T - <<<"$snapshots"
    printf '%s\n' "$snapshots"
    if [ "${2:-}" = --all ]; then
        while read -r pending; do
            mv "$pending" "${pending%.new}"
        done <<<"$snapshots"
        echo "accepted; look at them with git diff snapshots/"
    else
        echo "look at them with: cargo insta review"
    fi
fi
