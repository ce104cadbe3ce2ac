#!/usr/bin/env python3
"""Runs the Indigo codes of HiRace's artifact in the simulator and prints a table of the races that it found.

    git clone https://github.com/JohnJacobsonIII/HiRace-Artifact-SC24
    python3 ci/hirace.py HiRace-Artifact-SC24 > hirace.txt

The plain codes of `indigo/indigo_sources` are run, without HiRace's own instrumentation: each over small graphs of
the kinds and sizes that the artifact's inputs are named after, in two grids, in all modes of the simulator. A code
races by its name, which says what bugs it has; `boundsBug` alone is an access out of bounds and no race. A racy code
is found if one of the runs tells of a race, and any other code is accused by one. Exit code 1 for a race that is not
found, an accusation, or a run without a result.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

BUGS = {"atomicBug", "guardBug", "raceBug", "syncBug"}
RACES = {"race-global", "race-shared", "missing-syncwarp"}

# Kind, vertices, edges: the names of the artifact's inputs.
GRAPHS = [
    ("DAG", 5, 5),
    ("counterDAG", 5, 5),
    ("DAG", 100, 200),
    ("DAG", 200, 400),
    ("counterDAG", 200, 1000),
    ("power_law", 200, 1000),
]

# Blocks and threads: enough for a block a vertex, and so few that persistent threads take several vertices each.
GRIDS = [(256, 64), (2, 64)]


def edges(kind, vertices, count, draw):
    """Distinct edges: to higher vertices, to lower ones, or to any, the first vertices most of all."""
    found = set()
    while len(found) < count:
        if kind == "power_law":
            low, high = (int(vertices * draw.random() ** 3) for _ in range(2))
        else:
            low, high = sorted(draw.sample(range(vertices), 2))
        if low != high:
            found.add((high, low) if kind == "counterDAG" else (low, high))
    return sorted(found)


def arguments(kind, vertices, count, draw):
    """What the artifact's host code passes: where each vertex's neighbours begin, the neighbours, and two arrays."""
    pairs = edges(kind, vertices, count, draw)
    degrees = collections.Counter(source for source, _ in pairs)
    begins = [0, *itertools.accumulate(degrees[vertex] for vertex in range(vertices))]
    size = max(vertices, count)
    data = [[0, *(draw.randrange(limit) for _ in range(size - 1))] for limit in (vertices, count)]
    return [begins, [target for _, target in pairs], *data]


def save(path, numbers):
    """Writes 32-bit integers as NumPy does."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(numbers)},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    content = struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(numbers)}i", *numbers)
    path.write_bytes(b"\x93NUMPY\x01\x00" + content)


def inputs(folder, seed):
    """The name of each input and the options of `kernelgate sim` that make it."""
    draw = random.Random(seed)
    for at, (kind, vertices, count) in enumerate(GRAPHS):
        options = []
        for index, numbers in enumerate(arguments(kind, vertices, count, draw)):
            path = folder / f"{at}-{index}.npy"
            save(path, numbers)
            options += ["--arg", f"i32:file:{path}"]
        options += ["--arg", f"i32:{vertices}"]
        for blocks, threads in GRIDS:
            yield (
                f"{kind} of {vertices} vertices, {blocks} blocks of {threads} threads",
                [*options, "--grid", str(blocks), "--block", str(threads)],
            )


def races(code):
    return not BUGS.isdisjoint(code.stem.split("_"))


def run(kernelgate, code, options, limit):
    """The findings of one code over one input."""
    command = [kernelgate, "sim", code, *options, "--mode", "all", "--json", "--quiet"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    if ended.returncode not in (0, 1):
        raise RuntimeError(ended.stderr.strip())
    return [finding for mode in json.loads(ended.stdout)["runs"] for finding in mode["findings"]]


def judge(kernelgate, code, launches, limit):
    """Where the first race of a code was found, and why there is no result."""
    for name, options in launches:
        try:
            findings = run(kernelgate, code, options, limit)
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            return None, f"{name}: {error}"
        race = next((finding for finding in findings if finding["check"] in RACES), None)
        if race:
            line = (race["place"]["source"] or {}).get("line")
            return f"{name}: {race['check']} at line {line}: {race['message']}", None
    return None, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact", type=pathlib.Path, help="a clone of HiRace's artifact")
    parser.add_argument("--kernelgate", default="target/release/kernelgate", help="the program [default: %(default)s]")
    parser.add_argument("--only", default="*", help="codes whose names match this pattern of a shell [default: all]")
    parser.add_argument("--seed", type=int, default=1, help="of the graphs [default: %(default)s]")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time [default: %(default)s]")
    parser.add_argument("--limit", type=float, default=60, help="seconds a run [default: %(default)s]")
    options = parser.parse_args()
    codes = sorted((options.artifact / "indigo" / "indigo_sources").glob(f"*/{options.only}.cu"))
    if not codes:
        parser.error(f"no codes in {options.artifact}/indigo/indigo_sources")

    # Racy codes, those found, others, those accused.
    table = {code.parent.name: [0, 0, 0, 0] for code in codes}
    wrong = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        launches = list(inputs(pathlib.Path(folder), options.seed))
        judged = pool.map(lambda code: judge(options.kernelgate, code, launches, options.limit), codes)
        for code, (race, failure) in zip(codes, judged):
            count = table[code.parent.name]
            at = 0 if races(code) else 2
            count[at] += 1
            count[at + 1] += race is not None
            if failure:
                wrong.append(f"{code.stem}: no result: {failure}")
            elif races(code) and not race:
                wrong.append(f"{code.stem}: not found")
            elif race and not races(code):
                wrong.append(f"{code.stem}: accused: {race}")
    print("| pattern | racy | found | free of races | accused |\n|---|---|---|---|---|")
    for name, count in [*table.items(), ("all", [sum(column) for column in zip(*table.values())])]:
        print(f"| {name} | {' | '.join(map(str, count))} |")
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
