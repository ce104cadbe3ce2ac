"""Which kernels of the PTX in CUDA wheels can be simulated.

    python corpus.py <kernelgate> <folder>

Downloads the wheels of `corpus.txt` into <folder>/wheels, takes the PTX out of their libraries with the cuobjdump of Triton's
wheel, adds the libraries that PyTorch's dependencies installed here, and writes <folder>/corpus.json.
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).parent
# Smaller files hold no kernels.
LEAST_BYTES = 100_000
# Of one package, for reading its PTX.
LIMIT_S = 1800


def cuobjdump():
    import triton

    return os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/cuobjdump")


class Texts:
    """The different PTX texts of a package, in a folder of their own."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, text):
        (self.folder / f"{hashlib.sha256(text).hexdigest()[:16]}.ptx").write_bytes(text)

    def add_library(self, path):
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            # It fails on libraries without device code.
            subprocess.run([cuobjdump(), "-xptx", "all", path], cwd=scratch, capture_output=True)
            for name in sorted(os.listdir(scratch)):
                self.add(pathlib.Path(scratch, name).read_bytes())


def take_wheel(wheel, texts):
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory(dir=texts.folder) as scratch:
        for entry in archive.infolist():
            if entry.filename.endswith(".ptx"):
                texts.add(archive.read(entry))
            elif (".so" in entry.filename or entry.filename.endswith(".fatbin")) and entry.file_size >= LEAST_BYTES:
                path = archive.extract(entry, scratch)
                texts.add_library(path)
                os.remove(path)


def take_installed(name, texts):
    for file in importlib.metadata.files(name) or []:
        path = file.locate()
        if ".so" in file.name and not path.is_symlink() and path.stat().st_size >= LEAST_BYTES:
            texts.add_library(str(path))


def examine(command, name, version, folder):
    answer = subprocess.run([command, "ptx", "--json", str(folder)], capture_output=True, text=True, timeout=LIMIT_S)
    if answer.returncode not in (0, 1):
        return None
    account = json.loads(answer.stdout)
    row = {"package": name, "version": version, "texts": len(account["files"])}
    row |= {key: account[key] for key in ("entries", "loadable", "unreadable", "reasons")}
    row["lost"] = [file["error"] for file in account["files"] if file["error"]]
    return row


def main():
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    rows = []
    for line in (HERE / "corpus.txt").read_text().split():
        name, _, version = line.partition("==")
        texts = Texts(folder / "ptx" / name)
        if not any(texts.folder.iterdir()):
            download = ["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(wheels), line]
            subprocess.run([sys.executable, "-m", *download], check=True)
            for wheel in wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl"):
                take_wheel(wheel, texts)
        rows.append(examine(command, name, version, texts.folder))
        print(rows[-1], flush=True)
    libraries = {found.metadata["Name"] for found in importlib.metadata.distributions()}
    for name in sorted(one for one in libraries if one.startswith(("nvidia-cu", "nvidia-nccl"))):
        texts = Texts(folder / "ptx" / name)
        if not any(texts.folder.iterdir()):
            take_installed(name, texts)
        if any(texts.folder.iterdir()):
            rows.append(examine(command, name, importlib.metadata.version(name), texts.folder))
            print(rows[-1], flush=True)
    rows = [row for row in rows if row and row["texts"]]
    total = {key: sum(row[key] for row in rows) for key in ("texts", "entries", "loadable", "unreadable")}
    (folder / "corpus.json").write_text(json.dumps({"total": total, "packages": rows}, indent=1))
    share = total["loadable"] / max(total["entries"], 1)
    print(f"{total['loadable']} of {total['entries']} kernels ({100 * share:.2f} %), {total['unreadable']} texts lost")
    sys.exit(0 if share >= 0.95 and total["unreadable"] == 0 else 1)


main()
