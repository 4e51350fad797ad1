"""`tile doctor`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tile_runtime.cli.common import Json, print_json
from tile_runtime.cli.errors import CommandError

DISTRIBUTIONS = (
    "tile-runtime", "tile-lang", "tile-autodiff", "tile-opt", "tile-hal", "tile-ir", "hal-llvm", "hal-opencl",
    "numpy", "islpy", "lark", "llvmlite", "pyopencl", "ml_dtypes",
)  # fmt: skip


def doctor(json: Json = False) -> None:
    """Say what is installed, what each backend finds, and what is missing; computes one sum on the default device."""
    import tile_hal

    reports = tile_hal.doctor()
    works, sentence = _trial()
    if json:
        print_json(
            {
                "versions": _versions(),
                "plugins": [
                    {"name": r.plugin.entry_point, "distribution": r.plugin.distribution, "status": r.plugin.status.value,
                     "lines": list(r.lines), "devices": list(r.devices)}
                    for r in reports
                ],
                "cache": _cache(),
                "works": works,
                "trial": sentence,
            }
        )  # fmt: skip
    else:
        print(
            " ".join(f"{name} {number or '(not installed)'}" + "," for name, number in _versions().items()).rstrip(",")
        )
        for report in reports:
            print(f"{report.plugin.entry_point}: {', '.join(report.devices) or 'no device'}")
            print("\n".join(f"  {line}" for line in report.lines))
        print(f"kernel cache: {_cache()['folder']} ({_cache()['setting']})")
        print(sentence)
    if not works:
        raise CommandError("no device computes; see above")


def _versions() -> dict[str, str | None]:
    return {"python": platform.python_version(), **{name: _version(name) for name in DISTRIBUTIONS}}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _cache() -> dict[str, Any]:
    from tile_hal.disk_cache import default_folder
    from tile_ir.settings import Settings

    settings = Settings.from_environment()
    return {"folder": str(settings.cache_dir or default_folder()), "setting": settings.cache}


def _trial() -> tuple[bool, str]:
    import numpy as np
    from tile_ir.diagnostics import TileError

    from tile_runtime.devices import device
    from tile_runtime.function import Function

    try:
        where = device()
        total = Function("function (A[N]) -> (S) { S[] = +(A[i]); }")(np.arange(5, dtype=np.float32), device=where)
    except TileError as problem:
        return False, str(problem)
    return bool(total == 10), f"{where.id} ({where.name}) computes" + ("" if total == 10 else f" wrongly: {total}")
