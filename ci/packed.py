#!/usr/bin/env python3
"""Fails unless a packed crate holds every file that its library was compiled from here, and what its manifest names.

What a build of the unpacked crate would show, without the build: the compiler has written down what it read.
Usage: packed.py CRATE FOLDER-TO-UNPACK-INTO, from the project's folder, after a build of the tests.
"""

import json
import os
import subprocess
import sys
import tarfile


def compiled_from():
    """The files of this project that the library as the tests have it was compiled from."""
    built = subprocess.run(
        ["cargo", "test", "--release", "--no-run", "--quiet", "--message-format=json"], stdout=subprocess.PIPE, check=True
    )
    found = set()
    for line in built.stdout.decode().splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["manifest_path"] == os.path.abspath("Cargo.toml"):
            continue
        if message["target"]["kind"] != ["lib"] or message["profile"]["test"]:
            continue
        rlib = next(name for name in message["filenames"] if name.endswith(".rlib"))
        folder, name = os.path.split(rlib)
        with open(os.path.join(folder, name.removeprefix("lib").removesuffix(".rlib") + ".d")) as rules:
            for rule in rules:
                if rule.startswith("#") or ": " not in rule:
                    continue
                read = rule.split(": ", 1)[1].replace("\\ ", "\0").split()
                found.update(os.path.relpath(name.replace("\0", " ")) for name in read)
    # What build scripts make lies in the target folder.
    return {name for name in found if not name.startswith(("..", "target/"))}


def main(crate, folder):
    needed = compiled_from()
    if len(needed) < 100:
        sys.exit(f"the compiler names {len(needed)} files: is the library built?")
    with tarfile.open(crate) as packed:
        packed.extractall(folder, filter="data")
    root = os.path.join(folder, os.path.basename(crate).removesuffix(".crate"))
    lacking = sorted(name for name in needed if not os.path.isfile(os.path.join(root, name)))
    if lacking:
        sys.exit("the package lacks " + ", ".join(lacking) + ": see `include` in Cargo.toml")
    asked = ["cargo", "metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path", f"{root}/Cargo.toml"]
    manifest = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout)
    targets = [target for package in manifest["packages"] for target in package["targets"]]
    kinds = sorted(kind for target in targets for kind in target["kind"])
    lacking = [target["src_path"] for target in targets if not os.path.isfile(target["src_path"])]
    if lacking or kinds != ["bin", "custom-build", "lib"]:
        sys.exit(f"the packed manifest has the targets {kinds} and lacks {lacking}")
    print(f"all {len(needed)} files that the library is compiled from are in it")


if __name__ == "__main__":
    main(*sys.argv[1:])
