"""A peer for the gate of the README: the same operator in plain Python, timed beside its candidates.

    cargo test --release --test gate -- --command bench fast_gelu::cpu --shape n=4096 --peer "python3 fast_gelu_peer.py"
"""

import array
import math
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../peers"))
import protocol


class FastGelu:
    """One case: its inputs are read once, outside the clock."""

    def __init__(self, case):
        self.case = case
        self.x = array.array("f", bytes(case.inputs[0].read()))

    def compute(self):
        return array.array("f", (x / (1.0 + math.exp(-1.5957691 * (x + 0.044715 * x**3))) for x in self.x))

    def run(self):
        self.case.outputs[0].write(self.compute().tobytes())

    def arm(self, heat, batch_us, instances):
        return 1

    def sample(self, instance):
        begun = time.perf_counter()
        self.compute()
        return (time.perf_counter() - begun) * 1e6

    def replay(self, instance):
        self.run()


protocol.serve("python", "plain Python", [("cpu", "this machine")], [protocol.offer("fast_gelu", "python", "cpu", ["f32"])], FastGelu)
