#!/usr/bin/env bash
# Brings the results of a bundle home: pending snapshots into snapshots/, to be looked at with `cargo insta review`, and
# the cases of failed property tests into regressions/, where the next run replays them.
#   bash ci/accept.sh results.tar.gz [--all]      --all accepts the snapshots without asking
set -euo pipefail
usage="usage: bash ci/accept.sh results.tar.gz [--all]"
refuse() {
    echo "refused: $1; nothing was changed" >&2
    exit 1
}
archive="$(realpath "${1:?$usage}")"
if [ -n "${2:-}" ] && [ "$2" != --all ]; then
    echo "$usage" >&2
    exit 2
fi
cd "${ACCEPT_ROOT:-$(dirname "$0")/..}"

# An archive is read whole before anything of it is used: one that is damaged or no file is refused.
[ -f "$archive" ] || refuse "$archive is not a file"
listed="$(tar -tvzf "$archive" 2>/dev/null)" || refuse "$archive is damaged"

# Only these two kinds of file, only below their folders: an archive is not trusted further than that.
wanted='(snapshots/[A-Za-z0-9_./-]+\.snap\.new|regressions/[A-Za-z0-9_.-]+\.txt)'
odd="$(awk '$1 !~ /^[-d]/' <<<"$listed" | grep -E " (snapshots|regressions)(/| |\$)" || true)"
[ -z "$odd" ] || refuse "$archive holds links or special files: $odd"
files="$(tar -tzf "$archive" | grep -E "^$wanted\$" | grep -vE '(^|/)\.\.?(/|$)' | sort || true)"
[ -z "$(uniq -d <<<"$files")" ] || refuse "$archive holds a file twice: $(uniq -d <<<"$files")"
snapshots="$(grep '^snapshots/' <<<"$files" || true)"
cases="$(grep '^regressions/' <<<"$files" || true)"
if [ -z "$snapshots$cases" ]; then
    echo "no pending snapshots and no failed cases in $archive"
    exit 0
fi

# Neither a link nor a pipe in the way of a file: what is written stays in this project.
while read -r file; do
    for taken in "$file" "${file%.new}"; do
        [ ! -L "$taken" ] || refuse "$taken is a link"
        [ ! -e "$taken" ] || [ -f "$taken" ] || refuse "$taken is not a file"
    done
    folder="$(dirname "$file")"
    while [ "$folder" != . ]; do
        [ ! -L "$folder" ] || refuse "$folder is a link"
        [ ! -e "$folder" ] || [ -d "$folder" ] || refuse "$folder is not a folder"
        folder="$(dirname "$folder")"
    done
done <<<"$files"

unpacked="$(mktemp -d)"
trap 'rm -rf "$unpacked"' EXIT
tar -xzf "$archive" -C "$unpacked" --no-same-owner -T - <<<"$files" || refuse "$archive cannot be unpacked"

if [ -n "$cases" ]; then
    mkdir -p regressions
    while read -r file; do
        # Lines that are known already, here or there, stand once.
        touch "$file"
        awk '!seen[$0]++' "$file" "$unpacked/$file" > "$file.new"
        mv "$file.new" "$file"
        echo "$file"
    done <<<"$cases"
    echo "the cases are replayed by the next run; commit them"
fi
if [ -n "$snapshots" ]; then
    while read -r pending; do
        mkdir -p "$(dirname "$pending")"
        if [ "${2:-}" = --all ]; then
            mv "$unpacked/$pending" "${pending%.new}"
        else
            mv "$unpacked/$pending" "$pending"
        fi
    done <<<"$snapshots"
    printf '%s\n' "$snapshots"
    if [ "${2:-}" = --all ]; then
        echo "accepted; look at them with git diff snapshots/"
    else
        echo "look at them with: cargo insta review"
    fi
fi
