"""The peer's side of kernelgate's measurement protocol (docs/protocol.md). Needs nothing but Python.

A peer makes a list of offers and a function that turns a case into an object with

    run()                             compute once, write the outputs with `write`
    arm(heat, batch_us, instances)    record batches, return how many there are
    sample(instance)                  time a batch: µs a launch, or (µs a launch, MHz)
    replay(instance)                  run that batch once more, write the outputs of its last launch

and calls `serve`. `Unsupported` refuses a case; any other exception is a failure of that case alone.
"""

import json
import math
import os
import sys

VERSION = 1

# Bytes of an element by the name of its dtype.
SIZES = {"f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "i64": 8, "i32": 4, "i8": 1, "u8": 1, "bool": 1}


class Unsupported(Exception):
    """The peer does not compute such a case."""


class Tensor:
    """An input or output: name, dtype, dims, and the file that holds its elements."""

    def __init__(self, message):
        self.name = message["name"]
        self.dtype = message["dtype"]
        self.dims = message["dims"]
        self.path = message["path"]

    @property
    def size_bytes(self):
        return math.prod(self.dims) * SIZES[self.dtype]

    def read(self):
        """The elements as bytes."""
        with open(self.path, "rb") as file:
            data = bytearray(file.read())
        if len(data) != self.size_bytes:
            raise ValueError(f"{self.path}: {len(data)} bytes, {self.size_bytes} are expected")
        return data

    def write(self, data):
        """Writes the elements, anything that has bytes."""
        with open(self.path, "wb") as file:
            file.write(data)


class Case:
    """What is to be computed."""

    def __init__(self, message):
        self.operator = message["operator"]
        self.candidate = message["candidate"]
        self.dtype = message["dtype"]
        self.seed = int(str(message["seed"]), 0)
        self.shape = shape(message["shape"])
        if "inputs" not in message:
            raise Unsupported("this peer draws no inputs of its own")
        self.inputs = [Tensor(tensor) for tensor in message["inputs"]]
        self.outputs = [Tensor(tensor) for tensor in message.get("outputs", [])]


def shape(text):
    """`rows=3,eps=1e-05,causal=true,layout=nhwc` as a dictionary."""

    def value(word):
        if word in ("true", "false"):
            return word == "true"
        for number in (int, float):
            try:
                return number(word)
            except ValueError:
                pass
        return word

    return {name: value(word) for name, word in (part.split("=") for part in text.split(",") if part)}


def offer(operator, candidate, device, dtypes):
    """One way to compute an operator."""
    return {"operator": operator, "candidate": candidate, "device": device, "dtypes": list(dtypes)}


def serve(name, about, devices, offers, prepare):
    """Says hello and answers until it is told to end. `devices` is a list of (kind, name)."""
    # Whatever a library prints must not come between the answers.
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    devices = [{"kind": kind, "name": label} for kind, label in devices]
    hello = {"answer": "hello", "protocol": VERSION, "name": name, "about": about, "devices": devices, "offers": offers}
    say({"id": 0, **hello})
    cases = {}
    for line in sys.stdin:
        message = json.loads(line)
        about_request = {key: message[key] for key in ("id", "case") if key in message}
        try:
            answer = _answer(cases, message, prepare)
        except Unsupported as reason:
            answer = {"answer": "unsupported", "reason": str(reason)}
        except Exception as error:  # noqa: BLE001 - whatever it was, the next case may work
            answer = {"answer": "failed", "reason": f"{type(error).__name__}: {error}"}
        say({**about_request, **answer})
        if answer["answer"] == "goodbye":
            return


def _answer(cases, message, prepare):
    request, number = message["request"], message.get("case")
    if request == "goodbye":
        return {"answer": "goodbye"}
    if request == "release":
        cases.pop(number, None)
        return {"answer": "released"}
    if request == "case":
        cases[number] = prepare(Case(message))
        return {"answer": "ready"}
    case = cases[number]
    if request == "run":
        case.run()
        return {"answer": "written"}
    if request == "arm":
        return {"answer": "armed", "instances": case.arm(message["heat"], message["batch_us"], message["instances"])}
    if request == "sample":
        sample = case.sample(message["instance"])
        launch_us, clock_mhz = sample if isinstance(sample, tuple) else (sample, None)
        clock = {} if clock_mhz is None else {"clock_mhz": clock_mhz}
        return {"answer": "sampled", "launch_us": launch_us, **clock}
    if request == "replay":
        case.replay(message["instance"])
        return {"answer": "written"}
    raise Unsupported(f"this peer knows no request `{request}`")
