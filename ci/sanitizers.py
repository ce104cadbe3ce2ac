#!/usr/bin/env python3
"""Runs the GPU candidates of a gate under the four tools of compute-sanitizer and prints a table of what they found.

    python3 ci/sanitizers.py target/release/deps/gate-… --jobs 12 > sanitizers.txt

A run is a process with a few correctness trials of one operator under one tool: `--budget` seconds a trial, of no more than
`--most-elements` elements a case. What is not reached counts as not run: the table has the trials and cases of an operator, and
how many of its runs came to no end within `--limit`. Exit code 1 if a tool reports anything, a trial fails, a run has no result,
or an operator no case.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = {
    # The gate asks for a parameter past a kernel's last one to learn how many there are: a refused call, and no defect.
    "memcheck": ["--report-api-errors", "no"],
    # Ahead of each case a kernel of the gate fills all shared memory of the device, which takes racecheck a second or more.
    # By itself the tool takes a thread of the host for every core, in each of the processes beside each other.
    "racecheck": ["--kernel-name-exclude", "kernel_substring=kernelgate_dirty", "--racecheck-num-workers", "1"],
}
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")

# A gate whose trials were cut by their budget ends with an error.
FINDING = re.compile(r"========= (?!COMPUTE-SANITIZER|.*SUMMARY|Target application returned an error| )")


def trials_of(gate, skipped):
    """The correctness trials, by operator."""
    listed = subprocess.run([gate, "--list", "--device", "cuda"], capture_output=True, text=True, check=True).stdout
    names = [line.split(": ")[0] for line in listed.splitlines() if line.endswith("::correctness: test")]
    trials = {}
    for name in names:
        if not any(part in name for part in skipped):
            trials.setdefault(name.split("::")[0], []).append(name)
    return trials


def output_of(command, limit):
    """What a command prints, and whether it ended in time; if not, nothing that it has started is left."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    try:
        return process.communicate(timeout=limit)[0], True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0], False


def run(gate, trials, tool, arguments):
    """What a tool says of trials: a count or None, the records of the gate, and the first finding."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "summary.json"
        command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", *OPTIONS.get(tool, [])]
        command += [gate, "--in-process", "--device", "cuda", "--out", out, "--budget", str(arguments.budget)]
        command += ["--most-elements", str(arguments.most_elements), "--exact", *trials]
        said, ended = output_of(command, arguments.limit)
        counts = [int(a or b) for a, b in SUMMARY.findall(said)]
        records = json.loads(out.read_text())["records"] if out.exists() else []
        records = [record for record in records if record["device"] == "cuda"]
        first = next((line for line in said.splitlines() if FINDING.match(line)), "")
        return (sum(counts) if counts and ended else None), records, first


def parts(trials, most):
    """Trials in runs of at most so many."""
    return [trials[at : at + most] for at in range(0, len(trials), most)]


def row(name, tools, runs):
    """Prints what all runs of an operator say; whether it was run and that is nothing."""
    counts = {tool: [count for of, count, _, _ in runs if of == tool and count is not None] for tool in tools}
    shown = "".join(f"{sum(of_tool) if of_tool else '-':>11}" for of_tool in counts.values())
    records = [record for _, _, of_run, _ in runs for record in of_run]
    reached = {record["trial"] for record in records if record["cases"]}
    failed = {record["trial"]: record.get("reason", "") for record in records if record["verdict"] in ("fail", "invalid")}
    cases = sum(record["cases"] for record in records)
    without = sum(count is None for _, count, _, _ in runs)
    print(f"{name:24}{shown}{len(reached):>9}{cases:>8}{len(failed):>8}{without:>8}", flush=True)
    for trial, reason in sorted(failed.items()):
        print(f"    {trial}: {reason}", flush=True)
    for tool, first in sorted({(tool, first) for tool, _, _, first in runs if first}):
        print(f"    {tool}: {first.strip('= ')}", flush=True)
    return bool(reached) and not failed and all(count == 0 for _, count, _, _ in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gate", help="the executable of a gate")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time; racecheck may take 8 GB of memory for each")
    parser.add_argument("--budget", type=float, default=5, help="seconds a trial")
    parser.add_argument("--most-elements", type=int, default=1 << 14, help="elements of a case, all tensors together")
    parser.add_argument("--limit", type=float, default=300, help="seconds a run")
    # Under racecheck a process takes half a minute until its first case.
    parser.add_argument("--trials", type=int, default=12, help="trials a run")
    parser.add_argument("--skip", action="append", default=[], help="trials to leave out, as of the gate: those of the CPU")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="these tools [default: all four]")
    parser.add_argument("--operator", action="append", help="these operators [default: all]")
    arguments = parser.parse_args()
    gate, tools = os.path.abspath(arguments.gate), arguments.tool or TOOLS
    trials = trials_of(gate, arguments.skip)
    if unknown := set(arguments.operator or []) - set(trials):
        parser.error(f"no operator with such trials is called {', '.join(sorted(unknown))}: there are {', '.join(trials)}")
    columns = "".join(f"{tool:>11}" for tool in tools)
    print(f"{'operator':24}{columns}{'trials':>9}{'cases':>8}{'failed':>8}{'no end':>8}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = {}
        for name in sorted(arguments.operator or trials):
            pieces = [(tool, part) for tool in tools for part in parts(trials[name], arguments.trials)]
            running[name] = [(tool, pool.submit(run, gate, part, tool, arguments)) for tool, part in pieces]
        rows = [row(name, tools, [(tool, *future.result()) for tool, future in runs]) for name, runs in running.items()]
    sys.exit(not all(rows))


if __name__ == "__main__":
    main()
