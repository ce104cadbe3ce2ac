#!/usr/bin/env bash
# The array on a cluster of one node on loopback: three shards, of which one is ended after some of its trials and queued
# again; merged, they are the whole run. Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge, which it installs, and
# `kernelgate` on the PATH or in target/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PWD/target/release:$PATH"
command -v kernelgate > /dev/null || { echo "no kernelgate: cargo build --release" >&2; exit 2; }
for program in slurmctld slurmd sbatch munged; do
    command -v "$program" > /dev/null && continue
    apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge
    break
done
work="$(mktemp -d)"
pids=()
finish() {
    status=$?
    trap - EXIT INT TERM HUP
    # The steps of jobs outlive their daemon; those of this cluster name its folder.
    [ "${SLURM_CONF:-}" != "$work/slurm.conf" ] || scancel --user=root 2> /dev/null || true
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    for _ in $(seq 20); do
        left=()
        for name in slurmstepd slurmd slurmctld munged; do
            for pid in $(pgrep -x "$name" || true); do
                # A process that has ended meanwhile has neither.
                if { cat "/proc/$pid/environ" "/proc/$pid/cmdline" | tr '\0' '\n' | grep -q "$work"; } 2> /dev/null; then
                    left+=("$pid")
                fi
            done
        done
        [ "${#left[@]}" -gt 0 ] || break
        kill "${left[@]}" 2> /dev/null || true
        sleep 0.5
    done
    [ "${#left[@]}" -eq 0 ] || kill -9 "${left[@]}" 2> /dev/null || true
    if [ "$status" -ne 0 ]; then tail -n 30 "$work"/*.log "$work"/gate/*.log 2> /dev/null || true; fi
    sleep 1
    rm -rf "$work"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Who may talk to whom.
munge="$work/munge"
install -d -m 755 -o munge "$work" "$munge"
dd if=/dev/urandom of="$munge/key" bs=1024 count=1 status=none
chown munge "$munge/key" && chmod 400 "$munge/key"
runuser -u munge -- munged --foreground --key-file="$munge/key" --socket="$munge/socket" --pid-file="$munge/pid" \
    --log-file="$munge/log" --seed-file="$munge/seed" > "$work/munged.log" 2>&1 &
pids+=($!)

# A node with this machine's name on the loopback address.
node="$(hostname -s)"
cpus="$(nproc)"
mkdir -p "$work/state" "$work/spool"
export SLURM_CONF="$work/slurm.conf"
cat > "$SLURM_CONF" << CONF
ClusterName=loopback
SlurmctldHost=$node(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
SchedulerParameters=requeue_delay=1
MinJobAge=600
ReturnToService=2
NodeName=$node NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=30 State=UP
CONF
slurmctld -D -f "$SLURM_CONF" > "$work/slurmctld.log" 2>&1 &
pids+=($!)
slurmd -D -f "$SLURM_CONF" -N "$node" > "$work/slurmd.log" 2>&1 &
pids+=($!)
for _ in $(seq 60); do sinfo -h -o %T 2> /dev/null | grep -q idle && break; sleep 1; done
sinfo -h -o %T | grep -q idle || { echo "the node did not come up" >&2; exit 1; }

# The whole run, and the same in three shards.
gate=(kernelgate check --device cpu --seed 7)
export GATE_FILTER="silu::naive silu::tiled"
# shellcheck disable=SC2086
"${gate[@]}" $GATE_FILTER --skip perf --out "$work/whole.json" > "$work/whole.log"
# Waits a little before it runs, so that there is something to kill.
slow="$work/slow-gate"
printf '#!/bin/bash\n[[ " $* " == *" --list "* ]] || { sleep 6 & wait; }\nexec "$@"\n' > "$slow"
chmod +x "$slow"
merge="$(ci/slurm/submit.sh 3 "$work/gate" "$slow" "${gate[@]}" --skip perf)"
# The first start of shard 1 is ended when it has found something: what it has is then a summary, but of a part.
part="$work/gate/.shard-1.part.json"
for _ in $(seq 3000); do grep -qs '\.\.\. ok' "$work/gate/shard-1.log" && break; sleep 0.02; done
victim="$(pgrep -f "^kernelgate .*shard-1.part.json" | head -1)"
kill -TERM "$victim"
for _ in $(seq 100); do [ -s "$part" ] && break; sleep 0.05; done
python3 - "$part" << 'PY'
import json, sys
records = json.load(open(sys.argv[1]))["records"]
ended = [r for r in records if r["verdict"] == "pass"]
assert 0 < len(ended) < len(records), f"{len(ended)} of {len(records)} trials: not a part"
print(f"ended shard 1 after {len(ended)} of its {len(records)} trials")
PY
# Were it still there, nothing that it does later counts.
kill -9 "$victim" 2> /dev/null || true
[ ! -e "$work/gate/shard-1.json" ] || { echo "a part of a shard looks like the whole" >&2; exit 1; }
for _ in $(seq 300); do
    state="$(scontrol show job "$merge" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p')"
    case "$state" in COMPLETED | FAILED | CANCELLED) break ;; esac
    sleep 1
done
[ "$state" = COMPLETED ] || { echo "the merge job is $state" >&2; exit 1; }
grep -q "start 2" "$work/gate/shard-1.log" || { echo "shard 1 was not started again" >&2; exit 1; }
python3 - "$work/whole.json" "$work/gate/summary.json" << 'PY'
import json, sys
whole, merged = (json.load(open(path)) for path in sys.argv[1:])
for summary in (whole, merged):
    for record in summary["records"]:
        del record["duration_s"]
assert len(whole["records"]) >= 12, len(whole["records"])
assert whole["records"] == merged["records"], "the merged shards are not the whole run"
assert whole["counts"] == merged["counts"]
print(f"{len(merged['records'])} trials in three shards, one of them killed and queued again: the whole run")
PY
test -s "$work/gate/junit.xml" && test -s "$work/gate/dashboard.html"
