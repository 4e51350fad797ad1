"""Object files to shared libraries, by the system's C compiler, and to archives, by ourselves."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from tile_hal.ahead import ObjectFile
from tile_ir.diagnostics import Diagnostic, TileDeviceError

SHARED, ARCHIVE = (".so", ".dylib"), ".a"


def compiler() -> list[str]:
    """The command of the system's C compiler: $CC, else cc; TILE-E527 where there is none."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if command and shutil.which(command[0]) is not None:
        return command
    hint = "an output that ends in .a needs none; link it where there is one"
    raise _failed("a shared library is linked by a C compiler, and there is no cc", hint)


def shared_library(objects: Sequence[ObjectFile], path: Path) -> None:
    """Links a shared library; TileDeviceError with what the linker says."""
    command = compiler()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{n}.o") for n in range(len(objects))]
        for file, made in zip(files, objects, strict=True):
            file.write_bytes(made.code)
        target = Path(folder, "linked")
        kind = ["-dynamiclib"] if sys.platform == "darwin" else ["-shared"]
        done = subprocess.run(
            [*command, *kind, "-o", str(target), *map(str, files), "-lm", "-lpthread"],
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        if done.returncode:
            raise _failed(f"{command[0]} does not link the library: {done.stderr.strip()[-2000:]}")
        path.write_bytes(target.read_bytes())  # a file of its own: one that is in use keeps what it had
        path.chmod(0o755)


def _failed(message: str, hint: str | None = None) -> TileDeviceError:
    return TileDeviceError(Diagnostic("TILE-E527", message, hint=hint))


def archive(objects: Sequence[ObjectFile]) -> bytes:
    """A static library as ``ar`` and ``ranlib`` write it for ELF: an index of symbols, and the object files."""
    names = [name.encode() + b"\0" for o in objects for name in o.symbols]
    index_size = 4 + 4 * len(names) + sum(map(len, names))
    first = len(_MAGIC) + _HEADER + index_size + index_size % 2
    sizes = [_HEADER + len(o.code) + len(o.code) % 2 for o in objects]
    starts = list(accumulate(sizes, initial=first))
    places = b"".join(start.to_bytes(4, "big") * len(o.symbols) for start, o in zip(starts, objects, strict=False))
    index = len(names).to_bytes(4, "big") + places + b"".join(names)
    members = (_member(f"{number}.o/", o.code) for number, o in enumerate(objects))
    return b"".join([_MAGIC, _member("/", index), *members])


_MAGIC, _HEADER = b"!<arch>\n", 60


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n"
    return head.encode() + data + b"\n" * (len(data) % 2)
