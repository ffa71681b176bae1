"""Lets the PyTorch of PyPI run on the CPU without NVIDIA's libraries, which take gigabytes.

    python without_cuda.py

PyPI's wheel for Linux is linked with them. This writes libraries of their names beside PyTorch's own, with the
functions that PyTorch refers to. Each function returns 100, CUDA's error that there is no device.
It does nothing where PyTorch can be imported. It needs gcc, nm and readelf.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def importable() -> bool:
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def write_library(path: pathlib.Path, functions: dict[str, list[str]]) -> None:
    """With the functions of each version; the version "" is none."""
    with tempfile.TemporaryDirectory() as place:
        source, script = pathlib.Path(place, "functions.c"), pathlib.Path(place, "versions")
        every = sorted({name for names in functions.values() for name in names})
        text = {n: '"no CUDA"' for n in every if re.search("String$|Name$|^ncclGetLastError$", n)}
        source.write_text("".join(f"const void *{n}(void) {{ return {text.get(n, '(void *)100')}; }}\n" for n in every))
        versions = [f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in functions.items() if v]
        script.write_text("".join(versions))
        options = [f"-Wl,--version-script={script}"] if versions else []
        command = ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{path.name}", *options, "-o", path, source]
        subprocess.run(command, check=True)


def main() -> int:
    found = importlib.util.find_spec("torch")
    if found is None or importable():
        return found is None
    folder = pathlib.Path(found.origin).parent / "lib"
    libraries: dict[str, dict[str, list[str]]] = {}  # each one's functions by version
    file_of: dict[str, str] = {}  # of a version
    wanted, there = set(), set()
    for path in folder.glob("*.so"):
        for name in re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl)[^\]]*)\]", output("readelf", "-d", path)):
            libraries[name] = {}
        for file, names in re.findall(r"File: (\S+) .*\n((?:.*  Name: .*\n)+)", output("readelf", "-V", path)):
            file_of.update((version, file) for version in re.findall(r"Name: (\S+)", names))
        for line in output("nm", "-D", path).splitlines():
            kind, symbol = line.split()[-2:]
            (wanted if kind in "Uwv" else there).add(symbol.replace("@@", "@"))
    for symbol in sorted(wanted):
        name, _, version = symbol.partition("@")
        file = file_of.get(version, min(libraries))
        if file in libraries and (version or re.match(r"cu|nccl|nv", name)) and name not in there:
            functions = libraries[file]
            functions.setdefault(version, []).append(name)
    for name, functions in libraries.items():
        write_library(folder / name, functions)
    return not importable()


if __name__ == "__main__":
    sys.exit(main())
