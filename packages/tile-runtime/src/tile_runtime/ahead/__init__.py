"""Functions built ahead of time: libraries with a C function, which need no Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tile_hal.interfaces import Device

    from tile_runtime.ahead.building import Built
    from tile_runtime.signature import Family, Signature


def build(
    function: Signature | Family,
    *args: Any,
    output: str | Path,
    header: str | Path | None = None,
    name: str | None = None,
    device: Device | str | None = None,
    target: str | None = None,
    threads: int = 1,
    **named: Any,
) -> Built:
    """Write `function`, for arguments like these, as a library with a C function that needs no Python.

    `args` are arrays, Tensors or placeholders, of which only the types count; constants and the Tensors that a composition
    is bound to are in the library. A function of arrays (`tile.jit`) takes trees of them, whose leaves are the C function's
    parameters, in order. `output` ends in ``.so`` (or ``.dylib``), which takes a C compiler to link, or in
    ``.a``; `header` receives the declarations. The C function is called `name`, or like the function: it takes the inputs,
    numbers by value and arrays by pointer, then a pointer for each output, and returns 0, or a status that the header names.

    `target` is what the code runs on: "host" (the default), "baseline", or a level such as "x86-64-v3". The library asks
    the processor at its first call. A call works on the caller's thread, and with `threads` above 1 on so many for
    kernels that take long. For a device of sources, such as OpenCL's, `output` is the file of kernels: see docs/ahead-of-time.md.

    TileTypeError for arguments, names and paths that do not fit, TileDeviceError when the device builds nothing or the
    library cannot be linked.
    """
    from tile_runtime.evaluator import default_evaluator

    bound: Mapping[str, Any] | None = getattr(function, "bound", None)
    values = () if bound is None else (*args, *named.values(), *bound.values())
    return default_evaluator(device, values).build(
        function, *args, output=output, header=header, name=name, target=target, threads=threads, **named
    )
