"""A Triton driver whose device is the simulator: host code runs as it is, on tensors of the CPU, and every launch goes to
`kernelgate sim-server`.

    import driver
    launches = driver.install("target/release/kernelgate")   # before the library under test is imported

`launches.records` then holds a record a launch: kernel, grid, instructions, findings, errors. A launch that the simulator
refuses or that has findings does not raise: whoever compares results looks at the records too.
"""

import atexit
import contextlib
import json
import os
import re
import struct
import subprocess
import tempfile
import types

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase, decompose_descriptor, expand_signature, wrap_handle_tensordesc_impl

CAPABILITY = (9, 0)
# What an H200 says of itself, as far as host code asks for it.
PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 3201000,
    "mem_bus_width": 6144,
}
SCALARS = {
    "i1": "<B", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
    "u1": "<B", "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
    "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip
# The names that a tensor map has for Triton's numbers of element types (those of the driver).
ELEMENTS = ["u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f64", "bf16"]
DEVICE_TO_HOST = {8: 10, 9: 8, 10: 9}
SWIZZLED_ROWS = [0, 32, 64, 128]


class Refused(Exception):
    """A launch that cannot be passed on."""


class Launches:
    """The simulator's process, and what was launched in it."""

    def __init__(self, command, limit_s=900):
        self.records = []
        # Whether each kernel is spoilt, to see that comparisons notice.
        self.spoils = False
        self.limit_s = limit_s
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(prefix="kernelgate-", dir=shared)
        self.process = subprocess.Popen([command, "sim-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.texts = {}
        atexit.register(self.close)

    def close(self):
        with contextlib.suppress(Exception):
            self.process.stdin.close()
            self.process.wait(10)
        self.process.kill()
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def text(self, ptx):
        """The file that holds this PTX."""
        if self.spoils:
            ptx = spoilt(ptx)
        if ptx not in self.texts:
            self.texts[ptx] = self.path(f"{len(self.texts)}.ptx")
            with open(self.texts[ptx], "w") as file:
                file.write(ptx)
        return self.texts[ptx]

    def launch(self, ptx, request, storages):
        """Sends the contents of the storages along, and brings back what the kernel made of them."""
        files = []
        for at, storage in enumerate(storages):
            files.append(self.path(f"{at}.bin"))
            view(storage).numpy().tofile(files[-1])
        before = [os.stat(name).st_mtime_ns for name in files]
        request = request | {"ptx": self.text(ptx), "buffers": files}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the simulator ended: exit code {self.process.wait()}")
        reply = json.loads(line)
        for storage, name, then in zip(storages, files, before):
            if os.stat(name).st_mtime_ns != then:
                view(storage).copy_(torch.from_file(name, size=storage.nbytes(), dtype=torch.uint8))
        self.records.append({"kernel": request["entry"], "grid": request["grid"], **reply})


def spoilt(ptx):
    """With every sum, difference and product of fractions exchanged for another."""
    swaps = {"add": "sub", "sub": "add", "mul": "add"}
    pattern = r"\b(add|sub|mul)(?=(\.rn)?(\.ftz)?\.(f32|f16x2|bf16x2|f16|bf16)\s)"
    return re.sub(pattern, lambda found: swaps[found[1]], ptx)


def view(storage):
    """The bytes of a storage as a tensor."""
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def flat(values):
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from flat(value)
        else:
            yield value


class Map:
    """A tensor map that the host asks for."""

    def __init__(self, descriptor, meta):
        element = meta["elem_type"]
        self.base = descriptor.base
        size = meta["elem_size"]
        extents, strides = list(descriptor.shape), list(descriptor.strides)
        if meta["fp4_padded"] or meta.get("is_im2col"):
            raise Refused("a tensor map of 4-bit elements or in the im2col mode")
        self.view = {
            "element": ELEMENTS[DEVICE_TO_HOST.get(element, element)],
            "extents": extents[::-1],
            "strides_bytes": [stride * size for stride in strides[-2::-1]],
            "box": list(meta["block_size"])[::-1],
            "swizzle": SWIZZLED_ROWS[meta["swizzle"]],
        }


class Launcher:
    """What Triton calls to launch one compiled kernel."""

    def __init__(self, launches, source, metadata):
        self.launches = launches
        self.metadata = metadata
        maps = getattr(metadata, "tensordesc_meta", None)
        expanded = expand_signature(source.signature.values(), maps, "nvTmaDesc")
        self.types = [kind for kind in flat(expanded)]
        self.run = wrap_handle_tensordesc_impl(self.launch, source.signature, maps, make_map)

    def __call__(self, *arguments):
        *head, kernel_arguments = arguments[:9] + (arguments[9:],)
        self.run(*head, kernel_arguments)

    def launch(self, x, y, z, stream, function, packed, launch_metadata, enter, leave, arguments):
        storages, starts = [], {}

        def buffer(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in starts:
                starts[storage.data_ptr()] = len(storages)
                storages.append(storage)
            return starts[storage.data_ptr()], tensor.data_ptr() - storage.data_ptr()

        def argument(kind, value):
            if isinstance(value, Map):
                index, offset = buffer(value.base)
                return {"map": {"buffer": index, "offset": offset, **value.view}}
            if kind.startswith("*"):
                if value is None:
                    return {"bytes": [0] * 8}
                if not hasattr(value, "untyped_storage"):
                    raise Refused(f"a pointer that is no tensor: {value!r}")
                index, offset = buffer(value)
                return {"buffer": {"index": index, "offset": offset}}
            if kind == "bf16":
                raw = struct.pack("<f", value)[2:]
            else:
                raw = struct.pack(SCALARS[kind], value)
            return {"bytes": list(raw)}

        meta = self.metadata
        values = list(flat(arguments))
        try:
            passed = [argument(k, v) for k, v in zip(self.types, values, strict=True) if k != "constexpr"]
            blocks = x * y * z
            for size in (meta.global_scratch_size, meta.profile_scratch_size):
                scratch = torch.empty(blocks * meta.num_ctas * size, dtype=torch.uint8) if size else None
                passed.append(argument("*i8", scratch))
            if blocks == 0:
                return
            request = {
                "entry": function.name,
                # A program of several blocks is a cluster along x.
                "grid": [x * meta.num_ctas, y, z],
                "block": [32 * meta.num_warps, 1, 1],
                "cluster": [meta.num_ctas, 1, 1],
                "shared": meta.shared,
                "arguments": passed,
            }
            self.launches.launch(function.ptx, request, storages)
        except Refused as why:
            self.launches.records.append({"kernel": function.name, "grid": [x, y, z], "error": str(why), "findings": []})


def make_map(descriptor, meta, _):
    if meta is None:
        return decompose_descriptor(descriptor)
    return [Map(descriptor, meta), *descriptor.shape, *descriptor.strides]


class Utils:
    """What Triton asks of a device."""

    def get_device_properties(self, device):
        return PROPERTIES

    def load_binary(self, name, binary, shared, device):
        # The launcher needs the text; `Driver` finds it through the binary.
        return binary, types.SimpleNamespace(name=name, ptx=Driver.texts[binary]), 0, 0, 1024

    def unload_module(self, module):
        pass


class Driver(DriverBase):
    """Triton's view of the simulator: one device of compute capability 9.0."""

    # PTX by cubin.
    texts = {}

    def __init__(self, launches):
        self.utils = Utils()
        self.launcher_cls = lambda source, metadata: Launcher(launches, source, metadata)
        compiled = triton.compiler.compiler.CompiledKernel
        made = compiled.__init__

        def remember(kernel, *arguments):
            made(kernel, *arguments)
            Driver.texts[kernel.kernel] = kernel.asm["ptx"]

        compiled.__init__ = remember

    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, kind):
        return kind

    def get_current_target(self):
        return GPUTarget("cuda", 10 * CAPABILITY[0] + CAPABILITY[1], 32)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        pass

    def get_current_stream(self, device):
        return 0

    def get_device_capability(self, device=0):
        return CAPABILITY

    def get_device_interface(self):
        return torch.cuda

    def get_benchmarker(self):
        # Where a library tunes itself, the first configuration is as good as any: nothing here is a time.
        return lambda call, **_: [0.0] * 3

    def get_empty_cache_for_benchmark(self):
        return torch.empty(0)

    def clear_cache(self, cache):
        pass


def install(command):
    """Makes the simulator Triton's device, and lets PyTorch tell of a GPU of that kind to those who ask."""
    launches = Launches(command)
    triton.runtime.driver.set_active(Driver(launches))
    cuda = torch.cuda
    properties = types.SimpleNamespace(
        name="simulator",
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        multi_processor_count=PROPERTIES["multiprocessor_count"],
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=PROPERTIES["max_shared_mem"],
        total_memory=140 << 30,
        warp_size=32,
    )
    cuda.is_available = lambda: True
    cuda.get_device_capability = lambda device=None: CAPABILITY
    cuda.get_device_properties = lambda device=None: properties
    cuda.get_device_name = lambda device=None: "simulator"
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 1
    cuda.synchronize = lambda device=None: None
    cuda.device = lambda device=None: contextlib.nullcontext()
    cuda.empty_cache = lambda: None
    return launches
