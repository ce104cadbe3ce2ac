#!/usr/bin/env python3
"""Runs the faulty and right candidates of fixtures/faulty as one gate, with no argument, and holds what it finds against itself.

    cargo test --release --test faults --no-run
    python3 ci/default-run.py target/release/deps/faults-… --out docs/results/default-run.json.xz

Three runs: no kernel is compiled yet; all are; the same beside as much other work as the machine has cores, twice. Faulty
candidates must fail, right ones (odd_…, right_…) must not, and all three must judge alike. Exit code 1 if they do not.
"""

import argparse
import collections
import datetime
import json
import lzma
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"


def run(gate, root, cache):
    """One run: its records by trial, and its seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELGATE_")}
    environment |= {"KERNELGATE_TEST_GATE": "1", "KERNELGATE_ROOT": root, "KERNELGATE_CACHE": cache}
    out = pathlib.Path(root) / "summary.json"
    begun = time.monotonic()
    ended = subprocess.run([gate, "--out", out], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.monotonic() - begun
    if ended.returncode != 101:
        sys.exit(f"the gate ended with {ended.returncode}, expected 101: {ended.stderr.decode(errors='replace')[-2000:]}")
    summary = json.loads(out.read_text())
    return {record["trial"]: record for record in summary["records"]}, seconds


def judged(records):
    """Of each candidate, by name: the checks that it failed."""
    found = collections.defaultdict(set)
    for record in records.values():
        name = f"{record['operator']}::{record['candidate']}"
        found[name]
        # Times on a machine without baselines are no matter here.
        if record["verdict"] == "fail" and record["check"] != "perf":
            found[name].add(record.get("failure", {}).get("check", record.get("reason", "")))
    return {name: sorted(checks) for name, checks in found.items()}


def is_right(name):
    return name.split("::")[1].startswith(("odd_", "right_"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gate")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    # An end by a signal ends what was begun as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows, verdicts = [], []
    # The gate runs in a folder that is no checkout.
    of_repository = ["git", "-C", FIXTURES, "rev-parse", "--short=12", "HEAD"]
    revision = subprocess.run(of_repository, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
    begun = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with tempfile.TemporaryDirectory() as cache:
        for what in ["first run, nothing compiled", "again", "beside other work"]:
            spinners = []
            if what == "beside other work":
                spin = [sys.executable, "-c", "while True: pass"]
                spinners = [subprocess.Popen(spin) for _ in range(2 * os.cpu_count())]
            try:
                with tempfile.TemporaryDirectory() as root:
                    # Whatever the run leaves beside its summary goes with the folder.
                    os.symlink(FIXTURES, pathlib.Path(root) / "fixtures")
                    records, seconds = run(arguments.gate, root, cache)
            finally:
                for spinner in spinners:
                    spinner.kill()
            found = judged(records)
            verdicts.append(found)
            faulty = [name for name in found if not is_right(name)]
            rows.append({
                "run": what,
                "seconds": round(seconds, 1),
                "candidates": len(found),
                "faulty": len(faulty),
                "found": sum(bool(found[name]) for name in faulty),
                "right": len(found) - len(faulty),
                "accused": sum(bool(found[name]) for name in found if is_right(name)),
                "trials": len(records),
                "cut": sum(record.get("cut", 0) for record in records.values()),
            })
            print(json.dumps(rows[-1]), flush=True)
    missed = sorted(name for name in verdicts[0] if not is_right(name) and not verdicts[0][name])
    accused = sorted(name for name in verdicts[0] if is_right(name) and verdicts[0][name])
    differing = sorted(
        name for name in verdicts[0] if any(bool(other.get(name)) != bool(verdicts[0][name]) for other in verdicts[1:])
    )
    result = {
        "started": begun,
        "revision": revision,
        "cores": os.cpu_count(),
        "runs": rows,
        "missed": missed,
        "accused": accused,
        "differing": differing,
    }
    if arguments.out:
        text = json.dumps(result, indent=1) + "\n"
        packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
        arguments.out.write_bytes(packed if arguments.out.suffix == ".xz" else text.encode())
    print(json.dumps({key: result[key] for key in ["missed", "accused", "differing"]}))
    sys.exit(1 if missed or accused or differing else 0)


if __name__ == "__main__":
    main()
