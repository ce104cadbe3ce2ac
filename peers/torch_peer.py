"""PyTorch as a peer of kernelgate (docs/protocol.md).

    kernelgate bench softmax::cuda --peer "python3 peers/torch_peer.py --mode eager,compile,liger"

On a GPU launches are recorded in CUDA graphs over rotated copies of the inputs, in several placements, and timed by
events behind a kernel that holds the stream: the method of kernelgate's own candidates. Every launch has an output of
its own until as many others have been written as there are buffer sets.
"""

import argparse
import collections
import ctypes
import functools
import gc
import math
import sys

import host_timing
import protocol
import torch
import torch_operators

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "i64": torch.int64,
    "i32": torch.int32,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
FLOATS = ["f32", "f16", "bf16"]

# As kernelgate's own timing has them: src/device/cuda/timing.rs.
L2_TIMES = 3
PLACEMENTS = 8
LEAST_SETS, MOST_SETS = 2, 512
MOST_LAUNCHES = 2048
# Cycles that the stream is held: before the clock is looked at, and while it is. Python takes tens of microseconds to
# enqueue what follows. Were the stream idle by then, the clock would seem low and the sample be taken for a throttled one.
HOLD_CYCLES, CLOCK_CYCLES = 400_000, 100_000


def load(tensor, device):
    """An input of the protocol as a tensor."""
    if math.prod(tensor.dims) == 0:
        return torch.empty(tensor.dims, dtype=DTYPES[tensor.dtype], device=device)
    return torch.frombuffer(tensor.read(), dtype=DTYPES[tensor.dtype]).reshape(tensor.dims).to(device)


def store(files, tensors):
    """Writes tensors as outputs of the protocol."""
    for file, tensor in zip(files, tensors, strict=True):
        if tensor.dtype != DTYPES[file.dtype] or list(tensor.shape) != file.dims:
            raise ValueError(f"{file.name} came as {tensor.dtype} {list(tensor.shape)}")
        host = tensor.detach().cpu().contiguous()
        size = host.numel() * host.element_size()
        file.write((ctypes.c_char * size).from_address(host.data_ptr()) if size else b"")


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


class HostCase(host_timing.HostCase):
    """A case on the CPU."""

    def __init__(self, case, function):
        super().__init__(case)
        self.function, self.files = function, case.outputs
        self.inputs = [[load(tensor, "cpu") for tensor in case.inputs]]
        self.outputs = [None]
        self.launch(0)

    def add_set(self):
        self.inputs.append([tensor.clone() for tensor in self.inputs[0]])
        self.outputs.append(None)

    def launch(self, turn):
        self.outputs[turn] = self.function(*self.inputs[turn])

    def write(self, turn):
        store(self.files, as_tuple(self.outputs[turn]))


Recorded = collections.namedtuple("Recorded", "graph outputs launches")


class CudaCase:
    """A case on a GPU."""

    def __init__(self, case, function):
        self.function, self.files = function, case.outputs
        self.inputs = [load(tensor, "cuda") for tensor in case.inputs]
        self.footprint_bytes = sum(tensor.size_bytes for tensor in case.inputs + case.outputs)
        self.stream = torch.cuda.Stream()
        self.before, self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        # Graphs know their inputs by address alone: the buffers must live as long.
        self.placements, self.recorded = [], []
        # Compilers and autotuners run now, not while a graph is recorded.
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                function(*self.inputs)
        torch.cuda.synchronize()

    def run(self):
        with torch.cuda.stream(self.stream):
            outputs = as_tuple(self.function(*self.inputs))
        torch.cuda.synchronize()
        store(self.files, outputs)

    def arm(self, heat, batch_us, instances):
        self.recorded, self.placements = [], []
        # What released cases held goes back to the device, where the other contestants need it.
        gc.collect()
        torch.cuda.empty_cache()
        sets = self._sets(heat)
        room = torch.cuda.mem_get_info()[0] // 8 // (sets * max(self.footprint_bytes, 1))
        self.placements = [self._placement(sets) for _ in range(max(1, min(PLACEMENTS, instances, room)))]
        placements = self.placements
        # Should these buffers need other code than those of the case, it is made now.
        with torch.cuda.stream(self.stream):
            self.function(*placements[0][0][-1])
        torch.cuda.synchronize()
        trial = self._record(placements[0], range(sets))
        self._time(trial)
        once_us = self._time(trial)[0]
        launches = min(max(math.ceil(batch_us / max(once_us, 0.5)), sets), MOST_LAUNCHES)
        for instance in range(instances):
            first = instance * sets // instances
            placement = placements[instance % len(placements)]
            self.recorded.append(self._record(placement, range(first, first + launches)))
        return instances

    def sample(self, instance):
        return self._time(self.recorded[instance])

    def replay(self, instance):
        recorded = self.recorded[instance]
        with torch.cuda.stream(self.stream):
            recorded.graph.replay()
        torch.cuda.synchronize()
        store(self.files, recorded.outputs)

    def _sets(self, heat):
        if heat == "hot":
            return 1
        cold_bytes = L2_TIMES * torch.cuda.get_device_properties(0).L2_cache_size
        return min(max(math.ceil(cold_bytes / max(self.footprint_bytes, 1)), LEAST_SETS), MOST_SETS)

    def _placement(self, sets):
        """Copies of the inputs, one block of memory for each input, and a pool for outputs and what lies between."""
        blocks = []
        for tensor in self.inputs:
            # Every copy starts as aligned as an allocation does.
            stride = math.ceil(tensor.numel() * tensor.element_size() / 256) * 256 // tensor.element_size()
            block = torch.empty(sets * stride, dtype=tensor.dtype, device="cuda")
            views = [block[turn * stride :][: tensor.numel()].view(tensor.shape) for turn in range(sets)]
            for view in views:
                view.copy_(tensor)
            blocks.append(views)
        return list(zip(*blocks, strict=True)), torch.cuda.graph_pool_handle()

    def _record(self, placement, turns):
        inputs, pool = placement
        # Outputs that are still held are not written again: memory rotates as the inputs do.
        held = collections.deque(maxlen=len(inputs))
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=pool)
            try:
                for turn in turns:
                    held.append(self.function(*inputs[turn % len(inputs)]))
            finally:
                # A stream that goes on recording would fail every later case.
                graph.capture_end()
        return Recorded(graph, as_tuple(held[-1]), len(turns))

    def _time(self, recorded):
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(HOLD_CYCLES)
            self.before.record()
            torch.cuda._sleep(CLOCK_CYCLES)
            self.start.record()
            recorded.graph.replay()
            self.end.record()
        self.end.synchronize()
        launch_us = self.start.elapsed_time(self.end) * 1e3 / recorded.launches
        return launch_us, CLOCK_CYCLES / (self.before.elapsed_time(self.start) * 1e3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = (
        "eager, compile, max_autotune (compile with its longest search), liger, epilogue (linear with GELU in one launch), flash or cudnn (attention by that back end), "
        "or several, separated by commas"
    )
    parser.add_argument("--mode", default="eager", help=modes)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)

    makers = {
        "eager": lambda: torch_operators.EAGER,
        "compile": torch_operators.compiled,
        "max_autotune": lambda: torch_operators.compiled("max-autotune-no-cudagraphs"),
        "liger": torch_operators.liger,
        "epilogue": lambda: torch_operators.EPILOGUE,
        "flash": lambda: torch_operators.attention_by("FLASH_ATTENTION"),
        "cudnn": lambda: torch_operators.attention_by("CUDNN_ATTENTION"),
    }
    operators = {}
    for mode in arguments.mode.split(","):
        try:
            operators[f"torch_{mode}" if mode != "liger" else mode] = makers[mode]()
        except ImportError as error:
            # The others may still take part.
            print(f"{mode}: {error}", file=sys.stderr)

    def prepare(case):
        function = functools.partial(operators[case.candidate][case.operator], case.shape)
        return HostCase(case, function) if arguments.device == "cpu" else CudaCase(case, function)

    offers = [
        protocol.offer(operator, candidate, arguments.device, FLOATS)
        for candidate, functions in operators.items()
        for operator in functions
    ]
    if arguments.device == "cpu":
        name, cuda = host_timing.device_name(), f"{torch.get_num_threads()} threads"
    else:
        cudnn = torch.backends.cudnn.version()
        name, cuda = torch.cuda.get_device_name(), f"CUDA {torch.version.cuda}, cuDNN {cudnn}"
    protocol.serve("torch", f"PyTorch {torch.__version__}, {cuda}", [(arguments.device, name)], offers, prepare)


if __name__ == "__main__":
    main()
