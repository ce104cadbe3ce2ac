#!/usr/bin/env bash
# Joins the shards of an array into one summary, and makes what CI reads from it. Ends as the gate does.
set -euo pipefail
shards="$1" folder="$2"
files=() missing=()
for ((i = 0; i < shards; i++)); do
    if [ -f "$folder/shard-$i.json" ]; then files+=("$folder/shard-$i.json"); else missing+=("$i"); fi
done
if [ "${#missing[@]}" -gt 0 ]; then
    echo "no summary of shard ${missing[*]}: see $folder/shard-<i>.log" >&2
    exit 3
fi
status=0
kernelgate merge "${files[@]}" --out "$folder/summary.json" || status=$?
[ "$status" -le 1 ] || exit "$status"
kernelgate report "$folder/summary.json" --junit "$folder/junit.xml" --html "$folder/dashboard.html"
exit "$status"
