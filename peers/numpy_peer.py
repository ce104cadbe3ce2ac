"""NumPy and Numba as peers of kernelgate on the CPU, in f32 (docs/protocol.md).

    kernelgate bench softmax::tiled --device cpu --peer "python3 peers/numpy_peer.py --library numpy,numba"
"""

import argparse
import functools
import sys

import host_timing
import numpy as np
import numpy_operators
import protocol

DTYPES = {"f32": np.float32, "i32": np.int32}


def load(tensor):
    return np.frombuffer(tensor.read(), dtype=DTYPES[tensor.dtype]).reshape(tensor.dims)


class Case(host_timing.HostCase):
    """A case whose outputs are written in place."""

    def __init__(self, case, function):
        super().__init__(case)
        self.function, self.files = function, case.outputs
        inputs = [load(tensor) for tensor in case.inputs]
        self.tensors = [inputs + self._outputs()]
        # Numba compiles now.
        self.launch(0)

    def _outputs(self):
        return [np.zeros(file.dims, dtype=DTYPES[file.dtype]) for file in self.files]

    def add_set(self):
        inputs = self.tensors[0][: -len(self.files)]
        self.tensors.append([tensor.copy() for tensor in inputs] + self._outputs())

    def launch(self, turn):
        self.function(*self.tensors[turn])

    def write(self, turn):
        for file, tensor in zip(self.files, self.tensors[turn][-len(self.files) :], strict=True):
            file.write(tensor.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", dest="names", default="numpy", help="numpy, numba, or both, separated by a comma")
    libraries = parser.parse_args().names.split(",")
    operators, about = {}, [f"NumPy {np.__version__}"]
    if "numpy" in libraries:
        operators["numpy"] = numpy_operators.operators()
    if "numba" in libraries:
        try:
            import numba
            import numba_operators

            operators["numba"] = numba_operators.operators()
            about.append(f"Numba {numba.__version__} with {numba.get_num_threads()} threads")
        except ImportError as error:
            # NumPy may still take part.
            print(f"numba: {error}", file=sys.stderr)

    def prepare(case):
        return Case(case, functools.partial(operators[case.candidate][case.operator], case.shape))

    offers = [
        protocol.offer(operator, candidate, "cpu", ["f32"])
        for candidate, functions in operators.items()
        for operator in functions
    ]
    devices = [("cpu", host_timing.device_name())]
    protocol.serve("numpy", ", ".join(about), devices, offers, prepare)


if __name__ == "__main__":
    main()
