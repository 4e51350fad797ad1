"""The device: kernels become C99, a shared library, and functions of addresses."""

from __future__ import annotations

import platform
import subprocess
import tempfile
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from tile_hal import Compiler, Library
from tile_hal.errors import Code, device_error
from tile_hal.host import HostDevice, HostLibrary, SharedObject, supported_dtypes, verify_kernels
from tile_ir.emit import c99
from tile_ir.kernels import KernelList
from tile_ir.semtree.errors import SemtreeError
from tile_ir.target import Capabilities, Target

FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-shared", "-fPIC")
"""Products and sums are rounded apart, as Tile says; an option like -ffast-math would change results."""


class SampleCompiler(Compiler):
    def __init__(self, command: str, nodes: frozenset[str]) -> None:
        self._command, self._nodes = command, nodes

    def build(self, kernels: KernelList) -> Library:
        verify_kernels(kernels, self._nodes)
        try:
            text = c99.source(kernels.kernels)
        except SemtreeError as problem:
            raise device_error(Code.BUILD, f"C cannot express a kernel: {problem}") from problem
        return library(kernels, SharedObject(self._compiled(text)), text)

    def _compiled(self, text: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            source, code = Path(folder, "kernels.c"), Path(folder, "kernels.so")
            source.write_text(text, "utf-8")
            command = [self._command, *FLAGS, "-o", str(code), str(source), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                raise device_error(Code.BUILD, f"{self._command} does not compile the kernels: {done.stderr[:2000]}")
            return code.read_bytes()

    def deserialize(self, kernels: KernelList, data: bytes) -> Library:
        return library(kernels, SharedObject.deserialize(data))

    def load(self, outline: KernelList, data: bytes) -> Library:
        return library(outline, SharedObject.deserialize(data))

    @property
    def fingerprint(self) -> str:
        return "\n".join([version("tile-ir"), platform.machine(), *FLAGS, compiler_version(self._command)])


@cache
def compiler_version(command: str) -> str:
    done = subprocess.run([command, "--version"], capture_output=True, text=True, errors="replace", check=False)
    return done.stdout.partition("\n")[0]


def library(kernels: KernelList, code: SharedObject, text: str = "") -> Library:
    """The kernels of a shared library, ready to run."""
    launches = [code.launch(f"run_{number}") for number in range(len(kernels.kernels))]
    return HostLibrary(kernels, launches, text, code.serialize())


def device(command: str) -> HostDevice:
    """The one device: C compiled by `command`."""
    target = Target.from_json(files("tile_sample").joinpath("target.json").read_text("utf-8"))
    capabilities = Capabilities(
        dtypes=supported_dtypes(), nodes=target.nodes, is_async=True, serializes=True, loads_outlines=True
    )
    return HostDevice("sample:0", f"C by {command}", target, capabilities, SampleCompiler(command, target.nodes))
