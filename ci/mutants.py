#!/usr/bin/env python3
"""Mutation testing in one build: draws mutants of cargo-mutants' list and says which of them the tests find.

All drawn mutants are compiled into a copy of the last commit, each behind a switch that an environment variable turns on
(mutant schemata). Needs cargo-mutants, and two wheels that read Rust:

    cargo install cargo-mutants --locked
    python3 -m venv target/mutants-venv && target/mutants-venv/bin/pip install tree-sitter tree-sitter-rust
    target/mutants-venv/bin/python ci/mutants.py --work target/mutants --out docs/results/mutants.json.xz

A run that was stopped goes on where it was: what is known of a mutant stands in results.jsonl in the --work folder, which
is for one commit. Survivors to which the --out file gives a reason under `equivalent` keep it.
"""

import argparse
import json
import lzma
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time

from schemata import SWITCH, SWITCHES, blamed, rewritten

# Modules that are not compiled here.
ABSENT = ["src/harness/worker/absent.rs"]
# Behind the unit tests of a mutant's own folder those targets that are about it, the cheapest first.
TARGETS = {
    "check": ["verdicts", "harness", "faults"],
    "baseline": ["verdicts", "baselines", "harness"],
    "measure": ["verdicts", "harness"],
    "harness": ["verdicts", "reports", "harness"],
    "report": ["reports", "harness"],
}
# Less optimised than tests usually are, and compiled again in parts.
SETTINGS = "[build]\nincremental = true\n[profile.release.package.kernelgate]\nopt-level = 1\n"
# What an endless loop may take, in bytes.
MEMORY = 12 << 30


def listed(tree):
    """cargo-mutants' list, by name."""
    command = ["cargo", "mutants", "--list", "--json"]
    command += [part for folder in TARGETS for part in ("--file", f"src/{folder}/**")]
    command += [part for file in ABSENT for part in ("--exclude", file)]
    mutants = json.loads(subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, check=True).stdout)
    kept = ("name", "file", "span", "genre", "replacement")
    return {mutant["name"]: {key: mutant[key] for key in kept} for mutant in mutants}


def prepare(work):
    """A copy of the last commit, and of what is built of the dependencies here."""
    tree, built = f"{work}/tree", f"{work}/target/release"
    os.makedirs(f"{tree}/.cargo")
    subprocess.run(["bash", "-c", 'git archive HEAD | tar -C "$0" -x', tree], check=True)
    with open(f"{tree}/.cargo/config.toml", "w", encoding="utf-8") as settings:
        settings.write(SETTINGS)
    if os.path.isdir("target/release/.fingerprint") and not os.path.isdir(built):
        os.makedirs(built)
        pack = "tar -C target/release -c --exclude='*kernelgate*' .fingerprint build deps"
        subprocess.run(["bash", "-c", f'{pack} | tar -C "$0" -x', built], check=True)


def build(work, *targets):
    """Builds tests of the copy: executables by target, and the errors of the compiler where it found some."""
    command = ["cargo", "test", "--release", "--no-run", "--message-format=json", *targets]
    environment = dict(os.environ, CARGO_TARGET_DIR=f"{work}/target")
    built = subprocess.run(command, cwd=f"{work}/tree", env=environment, stdout=subprocess.PIPE, check=False)
    messages = [json.loads(line) for line in built.stdout.decode().splitlines() if line.startswith("{")]
    errors = [m["message"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"]
    if built.returncode != 0 and not errors:
        sys.exit("the copy does not build")
    tests = [m for m in messages if m["reason"] == "compiler-artifact" and m["profile"]["test"] and m["executable"]]
    return {"lib" if "lib" in m["target"]["kind"] else m["target"]["name"]: m["executable"] for m in tests}, errors


def drawn(work, seed, count):
    """The drawn mutants that the copy can switch, and those of the draw that it cannot."""
    if os.path.exists(f"{work}/drawn.json"):
        with open(f"{work}/drawn.json", encoding="utf-8") as file:
            return json.load(file)
    prepare(work)
    mutants, sources = listed(f"{work}/tree"), {}
    order = random.Random(seed).sample(sorted(mutants), len(mutants))
    for number, name in enumerate(order):
        mutants[name]["number"] = number
        with open(f"{work}/tree/{mutants[name]['file']}", "rb") as file:
            sources[mutants[name]["file"]] = file.read()
    with open(f"{work}/tree/src/lib.rs", "a", encoding="utf-8") as library:
        library.write(SWITCHES)
    # Some more than wanted, since a few will not compile: those that replace them are then built already.
    taken, refused, errors = order[: count + count // 3], {}, None
    while errors != []:
        for path, source in sources.items():
            here = [mutants[name] for name in taken if mutants[name]["file"] == path and name not in refused]
            if here:
                with open(f"{work}/tree/{path}", "w", encoding="utf-8") as file:
                    file.write(rewritten(source, here, refused))
        _, errors = build(work, "--lib")
        found = {blamed(work, error): error for error in errors if error["spans"]}
        found.pop(None, None)
        if errors and not found:
            sys.exit("\n".join(error["rendered"] for error in errors))
        refused.update({order[number]: f"does not compile: {error['message']}" for number, error in found.items()})
        print(f"{len(refused)} of {len(taken)} cannot be switched", flush=True)
    revision = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], stdout=subprocess.PIPE, check=True).stdout
    names = [name for name in taken if name not in refused][:count]
    before = taken[: taken.index(names[-1])]
    found = {
        "revision": revision.decode().strip(),
        "listed": len(mutants),
        "mutants": [mutants[name] for name in names],
        "refused": {name: refused[name] for name in before if name in refused},
    }
    with open(f"{work}/drawn.json", "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    return found


def tested(work, command, number, limit):
    """Runs tests with a mutant, or with none, until the first fails: seconds, and what failed."""
    environment = dict(os.environ, CARGO_MANIFEST_DIR=f"{work}/tree", CARGO_NET_OFFLINE="true")
    if number is not None:
        environment[SWITCH] = str(number)
    began, path = time.monotonic(), f"{work}/output-{os.getpid()}.txt"
    with open(path, "wb") as output:
        process = subprocess.Popen(
            command, cwd=f"{work}/tree", env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
        )
    failed, code, is_late = [], None, False
    while code is None and not failed and not is_late:
        time.sleep(0.1)
        code, is_late = process.poll(), limit is not None and time.monotonic() > began + limit
        with open(path, encoding="utf-8", errors="replace") as output:
            failed = re.findall(r"^test (\S+).* \.\.\. FAILED$", output.read(), re.MULTILINE)
    try:
        # What a test leaves behind goes with it.
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    ended = ["time limit"] if code is None else [] if code == 0 else [f"exit code {code}"]
    return round(time.monotonic() - began, 1), failed or ended


def stages(folder, executables):
    """The commands that may find a mutant of a folder, in their order."""
    stages = [(f"unit tests of {folder}", [executables["lib"], f"{folder}::"])]
    stages += [(target, [executables[target]]) for target in TARGETS[folder] if target in executables]
    return stages + [(f"unit tests beside {folder}", [executables["lib"], "--skip", f"{folder}::"])]


def judge(work, mutants, executables):
    """Runs what has not been run, stage by stage: what failed, by mutant and stage."""
    known = {}
    with open(f"{work}/results.jsonl", "a+", encoding="utf-8") as file:
        file.seek(0)
        for one in map(json.loads, file):
            known.setdefault(one["mutant"], {})[one["stage"]] = one

        def run(name, number, stage, command, limit):
            if stage not in known.setdefault(name, {}):
                seconds, failed = tested(work, command, number, limit)
                known[name][stage] = {"mutant": name, "stage": stage, "seconds": seconds, "failed": failed}
                print(json.dumps(known[name][stage]), file=file, flush=True)
                print(f"{stage}, {seconds} s: {failed or 'nothing failed'}: {name}", flush=True)
            return known[name][stage]

        for rank in range(max(map(len, TARGETS.values())) + 2):
            for mutant in mutants:
                name, folder = mutant["name"], mutant["file"].split("/")[1]
                if any(one["failed"] for one in known.get(name, {}).values()):
                    continue
                for stage, command in stages(folder, executables)[rank : rank + 1]:
                    usual = run("none", None, stage, command, None)
                    if usual["failed"]:
                        sys.exit(f"fails without a mutant: {stage}: {usual['failed']}")
                    run(name, mutant["number"], stage, command, 5 * usual["seconds"] + 20)
    return {mutant["name"]: {s: one["failed"] for s, one in known[mutant["name"]].items()} for mutant in mutants}


def summary(seed, found, results, reasons):
    """What the --out file says."""
    killed, survivors = {}, []
    for name, by_stage in results.items():
        stage = next((stage for stage, failed in by_stage.items() if failed), None)
        if stage is None:
            survivors.append(name)
        else:
            killed.setdefault(stage, {})[name] = by_stage[stage][0]
    return {
        "revision": found["revision"],
        "seed": seed,
        "listed": found["listed"],
        "drawn": len(results),
        "killed": sum(map(len, killed.values())),
        "equivalent": {name: reasons[name] for name in survivors if name in reasons},
        "survived": [name for name in survivors if name not in reasons],
        "killed_by": killed,
        "not_switchable": found["refused"],
    }


def main():
    """Draws, builds, runs and writes the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="a folder for the copy, its build and what is found")
    parser.add_argument("--out", required=True, help="the summary, packed JSON: .json.xz")
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--unit-only", action="store_true", help="no other tests than the unit tests")
    options = parser.parse_args()
    work, out = os.path.abspath(options.work), os.path.abspath(options.out)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    found = drawn(work, options.seed, options.count)
    targets = {target for targets in TARGETS.values() for target in targets if not options.unit_only}
    executables, errors = build(work, "--lib", *(f"--test={target}" for target in sorted(targets)))
    if errors:
        sys.exit("\n".join(error["rendered"] for error in errors))
    reasons = {}
    if os.path.exists(out):
        with lzma.open(out, "rt", encoding="utf-8") as file:
            reasons = json.load(file)["equivalent"]
    told = summary(options.seed, found, judge(work, found["mutants"], executables), reasons)
    with lzma.open(out, "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as file:
        print(json.dumps(told, indent=1), file=file)
    print(
        f"seed {told['seed']}: of {told['drawn']} mutants {told['killed']} killed, {len(told['equivalent'])} equivalent, "
        f"{len(told['survived'])} survived; {len(told['not_switchable'])} more of the draw could not be switched"
    )


main()
