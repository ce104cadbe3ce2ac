#!/usr/bin/env bash
# Submits a gate to Slurm: a job array with one shard a task, and a job that merges them when all have ended.
#
#   ci/slurm/submit.sh <shards> <folder> <gate command> [<gate arguments> ...]
#   ci/slurm/submit.sh 4 /scratch/gate kernelgate check --device cuda
#   SBATCH_GRES=gpu:1 ci/slurm/submit.sh 4 /scratch/gate target/release/deps/gate-0123 --device cuda
#
# The folder is one that all nodes see. It gets shard-<i>.json, summary.json, junit.xml and the logs. The id of the merge
# job is printed; its exit code is that of the gate. Whatever sbatch reads from SBATCH_* applies to the shards. Filters go
# into GATE_FILTER, since a shard names its trials in full.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,12p' "$0" >&2; exit 2; }
shards="$1" folder="$2"
shift 2
here="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "$folder"
rm -f "$folder"/shard-*.json "$folder/summary.json"
# Both scripts are copied by sbatch: they find nothing beside them.
array="$(sbatch --parsable --requeue --array="0-$((shards - 1))" --job-name=gate \
    --output="$folder/shard-%a.log" --open-mode=append "$here/shard.sh" "$shards" "$folder" "$@")"
# However the shards end: a failed verdict is in their summaries, and what is missing is said.
env -u SBATCH_GRES -u SBATCH_GPUS sbatch --parsable --dependency="afterany:$array" --job-name=gate-merge \
    --output="$folder/merge.log" "$here/merge.sh" "$shards" "$folder"
