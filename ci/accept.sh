#!/usr/bin/env bash
# Brings the pending snapshots of a bundle's results back into snapshots/, to be looked at with `cargo insta review`.
#   bash ci/accept.sh results.tar.gz [--all]      --all accepts them without asking
set -euo pipefail
archive="$(realpath "${1:?usage: ci/accept.sh results.tar.gz [--all]}")"
cd "$(dirname "$0")/.."

# Only snapshots, only below snapshots/: an archive is not trusted further than that.
members="$(tar -tzf "$archive" | grep -E '^snapshots/[A-Za-z0-9_./-]+\.snap\.new$' | grep -v '\.\.' || true)"
if [ -z "$members" ]; then
    echo "no pending snapshots in $archive"
    exit 0
fi
printf '%s\n' "$members" | tar -xzf "$archive" -T -
printf '%s\n' "$members"
if [ "${2:-}" = --all ]; then
    printf '%s\n' "$members" | while read -r pending; do
        mv "$pending" "${pending%.new}"
    done
    echo "accepted; look at them with git diff snapshots/"
else
    echo "look at them with: cargo insta review"
fi
