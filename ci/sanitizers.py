#!/usr/bin/env python3
"""Runs the GPU candidates of a gate under the four tools of compute-sanitizer and prints a table of what they found.

    python3 ci/sanitizers.py target/release/deps/gate-… --jobs 12 > sanitizers.txt

An operator is a run for each tool: the correctness trials of all its candidates and dtypes in one process, `--budget` seconds a
trial, of no more than `--most-elements` elements a case: under racecheck a kernel takes a thousand times as long. What is not
reached counts as not run: the table has the trials and cases. Exit code 1 if a tool reports anything, or if a run has no result.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# The gate asks for a parameter past a kernel's last one to learn how many there are: a refused call, and no defect.
OPTIONS = {"memcheck": ["--report-api-errors", "no"]}
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")

# A gate whose trials were cut by their budget ends with an error.
FINDING = re.compile(r"========= (?!COMPUTE-SANITIZER|.*SUMMARY|Target application returned an error| )")


def operators(gate, skipped):
    """The operators with trials on a GPU."""
    listed = subprocess.run([gate, "--list", "--device", "cuda"], capture_output=True, text=True, check=True).stdout
    names = [line.split(": ")[0] for line in listed.splitlines() if line.endswith("::correctness: test")]
    return sorted({name.split("::")[0] for name in names if not any(part in name for part in skipped)})


def run(gate, operator, tool, skipped, budget, most_elements, limit):
    """What a tool says of an operator: a count or None, and the records of the gate."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "summary.json"
        command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", *OPTIONS.get(tool, [])]
        command += [gate, "--in-process", "--device", "cuda", f"{operator}::", "--out", out]
        command += ["--budget", str(budget), "--most-elements", str(most_elements)]
        for part in [*skipped, "::property", "::perf"]:
            command += ["--skip", part]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit)
            said = ended.stdout + ended.stderr
        except subprocess.TimeoutExpired as ended:
            said = (ended.stdout or b"").decode(errors="replace")
        counts = [int(a or b) for a, b in SUMMARY.findall(said)]
        records = json.loads(out.read_text())["records"] if out.exists() else []
        # `operator::` also hits the end of other operators' names.
        records = [record for record in records if record["operator"] == operator and record["device"] == "cuda"]
        first = next((line for line in said.splitlines() if FINDING.match(line)), "")
        return (sum(counts) if counts else None), records, first


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gate", help="the executable of a gate")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--budget", type=float, default=5, help="seconds a trial")
    parser.add_argument("--most-elements", type=int, default=1 << 14, help="elements of a case, all tensors together")
    parser.add_argument("--limit", type=float, default=300, help="seconds a run")
    parser.add_argument("--skip", action="append", default=[], help="trials to leave out, as of the gate")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="these tools [default: all four]")
    parser.add_argument("--operator", action="append", help="these operators [default: all]")
    arguments = parser.parse_args()
    gate, tools = os.path.abspath(arguments.gate), arguments.tool or TOOLS
    names = operators(gate, arguments.skip)
    if unknown := set(arguments.operator or []) - set(names):
        parser.error(f"no operator with trials on a GPU is called {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    names = [name for name in names if name in (arguments.operator or names)]
    print(f"{'operator':24}" + "".join(f"{tool:>11}" for tool in tools) + f"{'trials':>9}{'cases':>8}{'failed':>8}", flush=True)
    found_any = False
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        submit = lambda operator, tool: pool.submit(
            run, gate, operator, tool, arguments.skip, arguments.budget, arguments.most_elements, arguments.limit
        )
        running = {operator: [submit(operator, tool) for tool in tools] for operator in names}
        for operator, futures in running.items():
            results = [future.result() for future in futures]
            counts = [count for count, _, _ in results]
            records = [record for _, of_tool, _ in results for record in of_tool]
            trials = {record["trial"] for record in records if record["cases"]}
            failed = {record["trial"] for record in records if record["verdict"] in ("fail", "invalid")}
            cases = sum(record["cases"] for record in records)
            shown = "".join(f"{'-' if count is None else count:>11}" for count in counts)
            print(f"{operator:24}{shown}{len(trials):>9}{cases:>8}{len(failed):>8}", flush=True)
            for tool, (_, _, first) in zip(tools, results):
                if first:
                    print(f"    {tool}: {first.strip('= ')}", flush=True)
            found_any |= any(count != 0 for count in counts)
    sys.exit(found_any)


if __name__ == "__main__":
    main()
