#!/usr/bin/env bash
# One task of the array: every nth trial of the gate. A gate that did not get as far as its verdicts is queued again.
set -euo pipefail
shards="$1" folder="$2"
shift 2
task="$SLURM_ARRAY_TASK_ID"
# Trials are dealt out one by one, so that those of one operator, which take alike, go to different shards.
# shellcheck disable=SC2086 # several filters are several words
mapfile -t trials < <("$@" ${GATE_FILTER:-} --list | sed -n 's/: test$//p' | awk -v n="$shards" -v i="$task" 'NR % n == i % n')
[ "${#trials[@]}" -gt 0 ] || { echo "shard $task: no trial is left for it: ask for fewer shards" >&2; exit 2; }
echo "shard $task of $shards: ${#trials[@]} trials on $(hostname), start $((${SLURM_RESTART_COUNT:-0} + 1))"
status=0
# Written under another name first: a shard that is killed leaves nothing that looks whole.
"$@" --exact "${trials[@]}" --out "$folder/.shard-$task.part.json" || status=$?
case "$status" in
    0 | 1 | 101)
        mv "$folder/.shard-$task.part.json" "$folder/shard-$task.json"
        exit "$status"
        ;;
esac
echo "shard $task ended with $status and no verdicts" >&2
if [ "${SLURM_RESTART_COUNT:-0}" -lt 3 ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$task"
    # Slurm ends this job.
    sleep 60
fi
exit "$status"
