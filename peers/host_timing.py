"""Timing on the host, as kernelgate times its own CPU candidates: loops over rotated buffers, one instance."""

import math
import os
import time

# Buffer sets, so that tiny cases do not fill the memory with bookkeeping.
MOST_SETS = 64

# What precedes a batch and does not count: several ticks of the scheduler. Threads that wake up together often find
# themselves on one processor, and stay there until it looks again.
LEAD_IN_S = 0.02

# How long a sample waits for the threads of this process to come to rest, and how often it looks: what a thread has used
# shows only after the kernel's next tick, up to 10 ms later.
REST_S, LOOK_S = 0.3, 0.025


def cache_bytes():
    """The last-level cache; 32 MiB where nothing tells."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size", encoding="ascii") as file:
            return int(file.read().strip().rstrip("K")) << 10
    except (OSError, ValueError):
        return 32 << 20


def device_name():
    """The processor's name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return os.uname().machine


def rest():
    """Waits until the threads of this process are idle. Pools that spin on after their work would take the cores away from
    whoever is sampled next."""
    deadline = time.perf_counter() + REST_S
    while True:
        begun, busy = time.perf_counter(), time.process_time()
        time.sleep(LOOK_S)
        now = time.perf_counter()
        if time.process_time() - busy < 0.1 * (now - begun) or now > deadline:
            return


class HostCase:
    """A case of the protocol: `launch(set)` computes into buffer set `set`, `add_set()` makes one more set, and
    `write(set)` writes its outputs. There is one set to begin with."""

    def __init__(self, case):
        self.footprint_bytes = sum(tensor.size_bytes for tensor in case.inputs + case.outputs)
        self.sets, self.next, self.launches = 1, 0, 1

    def run(self):
        self.launch(0)
        self.write(0)

    def arm(self, heat, batch_us, instances):
        if heat == "cold":
            wanted = math.ceil(2 * cache_bytes() / max(self.footprint_bytes, 1))
            while self.sets < min(max(wanted, 1), MOST_SETS):
                self.add_set()
                self.sets += 1
        once_us = self._time(self.sets) / self.sets
        self.launches = max(1, math.ceil(batch_us / max(once_us, 0.01)))
        return 1

    def sample(self, instance):
        until = time.perf_counter() + LEAD_IN_S
        while time.perf_counter() < until:
            self._time(1)
        launch_us = self._time(self.launches) / self.launches
        rest()
        return launch_us

    def replay(self, instance):
        self._time(self.launches)
        self.write((self.next - 1) % self.sets)

    def _time(self, launches):
        # A batch goes on where the last one ended, or it would find its data in the cache.
        sets, turn = self.sets, self.next
        begun = time.perf_counter()
        for _ in range(launches):
            self.launch(turn)
            turn = (turn + 1) % sets
        took_us = (time.perf_counter() - begun) * 1e6
        self.next = turn
        return took_us
