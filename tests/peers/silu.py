"""A peer for the tests: computes silu in plain Python, or does what its argument says.

    right, slow_start, chatty             behaves
    absent_minded, dies, dies_armed, dies_sampling, hangs, hangs_sampling, orphan, garbage, endless,
    wrong_id, wrong_kind, nan, null, negative, instant, eternal, wrong_output, short_output, no_output,
    wrong_later, old_version, many_instances, refuses, fails, other_device
"""

import array
import math
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../peers"))
import protocol

MODE = sys.argv[1]


def raw(text):
    """A line that is no answer of the protocol module."""
    ANSWERS.write(text + "\n")
    ANSWERS.flush()


class Silu:
    def __init__(self, case):
        if MODE == "refuses":
            raise protocol.Unsupported("it is Sunday")
        if MODE == "dies":
            os._exit(7)
        if MODE in ("hangs", "orphan"):
            if MODE == "orphan":
                child = subprocess.Popen(["sleep", "600"])
                with open(sys.argv[2], "w", encoding="utf-8") as file:
                    file.write(str(child.pid))
            time.sleep(600)
        if MODE == "fails":
            raise RuntimeError("no room on the moon")
        if MODE == "garbage":
            raw("Segmentation fault (core dumped)")
        if MODE == "endless":
            ANSWERS.write("x" * (5 << 20))
            ANSWERS.flush()
            time.sleep(600)
        if MODE == "wrong_id":
            raw('{"id": 99, "case": 1, "answer": "ready"}')
        if MODE == "wrong_case":
            raw('{"id": 1, "case": 99, "answer": "ready"}')
        if MODE == "wrong_kind":
            raw('{"id": 1, "case": 1, "answer": "written"}')
        if MODE == "chatty":
            print("a library says something on the standard output")
        self.case = case
        self.x = array.array("f", bytes(case.inputs[0].read()))
        self.timed = False

    def compute(self):
        return array.array("f", (x / (1.0 + math.exp(-x)) for x in self.x))

    def write(self, y):
        if MODE == "no_output":
            return
        if MODE == "wrong_output" or (MODE == "wrong_later" and self.timed):
            y[len(y) - 1] += 1.0
        data = y.tobytes()
        self.case.outputs[0].write(data[:-4] if MODE == "short_output" else data)

    def run(self):
        self.write(self.compute())

    def arm(self, heat, batch_us, instances):
        if MODE == "dies_armed":
            os._exit(8)
        return 99 if MODE == "many_instances" else 1

    def sample(self, instance):
        self.timed = True
        if MODE == "dies_sampling":
            os.abort()
        if MODE == "hangs_sampling":
            time.sleep(600)
        if MODE == "nan":
            return math.nan
        if MODE == "null":
            return None
        if MODE == "negative":
            return -1.0
        if MODE == "instant":
            return 1e-300
        if MODE == "eternal":
            return 1e12
        begun = time.perf_counter()
        self.compute()
        return (time.perf_counter() - begun) * 1e6

    def replay(self, instance):
        self.write(self.compute())


ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
if MODE == "absent_minded":
    time.sleep(600)
if MODE == "old_version":
    protocol.VERSION = 99
device = "cuda" if MODE == "other_device" else "cpu"
offers = [protocol.offer("silu", "python", device, ["f32"])]
protocol.serve("python", "plain Python", [(device, "this machine")], offers, Silu)
