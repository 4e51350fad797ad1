"""A repository for a new backend that conforms from the start: package, tests, workflow, README.

`tile new-backend NAME` and ``python -m tile_hal.scaffold NAME`` write it. The templates are the files themselves with a
few words in ``@``: what they build is the device that `docs/plugin.md` explains.
"""

from __future__ import annotations

import keyword
import os
import re
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

from tile_hal.errors import Code, device_error
from tile_hal.interfaces import HAL_API

KINDS: Mapping[str, str] = {
    "c": "how kernels become C, are compiled, loaded and run",
    "stripe": "how scheduled Stripe is run",
}
"""Kinds of backend, and what `device.py` of each says."""
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LICENSE = re.compile(r"[A-Za-z0-9.+() -]*")
_LONGEST = 40
_OURS = frozenset(
    [
        "ir",
        "hal",
        "lang",
        "opt",
        "runtime",
        "autodiff",
        "nn",
        "onnx",
        "torch",
        "jax",
        "dask",
        "lsp",
        "llvm",
        "opencl",
        "interp",
        "null",
    ]
)
"""Names whose package or driver exists, whether it is installed here or not."""


def new_backend(name: str, kind: str = "c", into: str | os.PathLike[str] = ".", license: str = "") -> Path:
    """Write the repository ``tile-<name>`` into the folder `into`; its path.

    `kind` is one of `KINDS`; `license` an SPDX expression for ``pyproject.toml``, none when empty. TileDeviceError for a name
    that cannot be used or is taken, an unknown kind, and a folder that is there already: nothing is ever overwritten.
    """
    _check_name(name)
    if kind not in KINDS:
        raise device_error(Code.SCAFFOLD, f"there is no kind {kind!r} of backend", f"the kinds are {', '.join(KINDS)}")
    if not _LICENSE.fullmatch(license):
        raise device_error(Code.SCAFFOLD, f"{license!r:.60} is no SPDX expression", "such as Apache-2.0 or MIT")
    target = Path(into, _distribution(name))
    if not Path(into).is_dir():
        raise device_error(Code.SCAFFOLD, f"{into} is no folder", "create it first")
    if os.path.lexists(target):
        raise device_error(Code.SCAFFOLD, f"{target} is there already", "choose another name, or another folder")
    try:
        with tempfile.TemporaryDirectory(dir=into, prefix=".tile-") as folder:
            whole = Path(folder, target.name)
            _write(rendered(name, kind, license), whole)
            whole.rename(target)
    except OSError as problem:
        raise device_error(Code.SCAFFOLD, f"{target} cannot be written: {problem.strerror or problem}") from problem
    return target


def rendered(name: str, kind: str = "c", license: str = "") -> dict[str, str]:
    """The repository's files: text by path."""
    words = {
        "name": name,
        "Name": "".join(part.capitalize() for part in name.split("_")),
        "title": name.replace("_", " ").capitalize(),
        "module": _module(name),
        "distribution": _distribution(name),
        "device": KINDS[kind],
        "api": repr(HAL_API),
        "license": f'license = "{license}"\n' if license else "",
    }
    found: dict[str, str] = {}
    for part in ("common", kind):
        for path, template in _templates(files("tile_hal.scaffold").joinpath("templates", part)):
            found[path.replace("MODULE", _module(name))] = _filled(template.read_text(encoding="utf-8"), words)
    return dict(sorted(found.items()))


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda match: words[match[1]], text)


def _templates(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".in"):
            found.append((prefix + entry.name.removesuffix(".in"), entry))
    return found


def _write(texts: Mapping[str, str], folder: Path) -> None:
    for path, text in texts.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")


def _distribution(name: str) -> str:
    return f"tile-{name.replace('_', '-')}"


def _module(name: str) -> str:
    return f"tile_{name}"


def _check_name(name: str) -> None:
    import tile_hal

    if len(name) > _LONGEST or not _NAME.fullmatch(name) or keyword.iskeyword(name):
        message = f"{name!r:.60} cannot be the name of a driver"
        raise device_error(Code.SCAFFOLD, message, "lower-case letters, digits and single underscores: my_chip")
    if name in _OURS or find_spec(_module(name)) is not None or name in tile_hal.drivers():
        message = f"{name!r} is taken: there is a driver of that name, or a package {_module(name)}"
        raise device_error(Code.SCAFFOLD, message, "choose a name that is your own")
