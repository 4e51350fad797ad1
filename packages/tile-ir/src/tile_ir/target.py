"""Targets: what the compiler knows of a device, as data.

A target is a JSON document: hardware settings, the machine as the cost model sees it, the hardware of an accelerator, the
code generator the backend wants, and the ordered pass list. Backends ship one; `Target.resolved` fills in probed values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, cast

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.document import from_document, to_document
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.machine import Machine


@frozen
class HardwareSettings:
    """The numbers that schedules are made from; a target document's ``settings``. None of them changes a result.

    - ``threads``: work items per group; 1 where a group is one item.
    - ``vec_size``: widest vector, in lanes of float32, that a work item should use.
    - ``use_global``: read inputs straight from global memory instead of staging tiles in local memory.
    - ``mem_width``: bytes of one useful memory transaction (a cache line).
    - ``max_mem``: local bytes per group; on a processor, the bytes of the L1 data cache.
    - ``static_local_bytes``: bytes of local arrays that a kernel may declare, where that is more than `max_mem`; 0: `max_mem`.
    - ``max_regs``: bytes of registers for the outputs of a group.
    - ``goal_groups``: groups needed for full occupancy.
    - ``goal_flops_per_byte``: knee of the roofline, in operations per byte of memory.
    - ``dim_sizes``: largest number of groups in each of the grid's three dimensions.
    - ``registers``: vector registers per work item.
    - ``vector_bytes``: bytes of one vector register.
    - ``l1_bytes``, ``l2_bytes``: data caches of one core.
    - ``l3_bytes``: shared last cache; larger outputs are streamed past the caches.
    - ``cores``: compute units that run groups at once; it decides the grain of work.
    - ``fma``: a product and the sum that it enters are one instruction.
    - ``masks``: vector loads, stores and arithmetic leave out single lanes at no cost.
    - ``shuffles``: neighbouring items of a group that hand values to one another by instructions; 0: through memory alone.
    - ``buffer_align``: bytes to which every buffer of the device is aligned, inputs included.
    - ``view_align``: bytes of which multiples are where views of a buffer may begin.
    - ``index_bits``: width of subscript arithmetic; 32 is used only where ranges prove that it suffices.
    """

    LEAST: ClassVar = dict.fromkeys(
        (
            "threads",
            "vec_size",
            "mem_width",
            "goal_groups",
            "dim_sizes",
            "cores",
            "vector_bytes",
            "buffer_align",
            "view_align",
        ),
        1,
    )
    threads: int = 1
    vec_size: int = 1
    use_global: bool = True
    mem_width: int = 64
    max_mem: int = 32768
    static_local_bytes: int = 0
    max_regs: int = 16384
    goal_groups: int = 1
    goal_flops_per_byte: int = 1
    dim_sizes: tuple[int, int, int] = (1 << 31, 1 << 31, 1 << 31)
    registers: int = 16
    vector_bytes: int = 16
    l1_bytes: int = 32768
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    cores: int = 1
    fma: bool = True
    masks: bool = False
    shuffles: int = 0
    buffer_align: int = 1
    view_align: int = 64
    index_bits: int = 64


@frozen
class Capabilities:
    """What a device can do, frozen: promises that the conformance suite checks.

    - ``dtypes``: those of tensors; a program with another is refused before anything is compiled, with its place.
    - ``nodes``: optional semtree nodes beyond the core, by class name, as the target's.
    - ``max_group_size``: work items of the largest group; above 1 only with the node ``Barrier``.
    - ``local_bytes``: memory that the items of a group share.
    - ``subgroup``: items that execute in lockstep; 1 without sub-groups.
    - ``is_async``: `run` returns while dependencies are pending; what is ready may all the same be done when it returns.
    - ``serializes``: `Library.serialize` gives bytes that `Compiler.deserialize` takes: code is kept on disk.
    - ``loads_outlines``: `Compiler.load` needs no bodies of kernels: programs start from the disk without being compiled.
    - ``compiles_apart``: its compiler is not known to survive all kernels: what is compiled for the first time is compiled in
      a worker process.
    - ``keeps_buffers``: buffers may be dropped while work on them is pending; their memory lives until it is over, and its
      reuse is ordered behind it.
    - ``loops``: what `Executor.direct` and `Executor.batch` take may hold loops; without it, steps of a loop are started one by one.
    - ``executes``: False for a compile-only device.
    - ``flushes_subnormals``: float dtypes in whose arithmetic a subnormal number, given or computed, may count as zero of its sign.
    - ``quirks``: deviations that will stay, a reason by the name of the failing test (``*`` stands for anything); one that
      no longer fails is an error.
    """

    dtypes: frozenset[DType] = frozenset(DType)
    nodes: frozenset[str] = frozenset()
    max_group_size: int = 1
    local_bytes: int = 0
    subgroup: int = 1
    is_async: bool = False
    serializes: bool = False
    loads_outlines: bool = False
    compiles_apart: bool = False
    keeps_buffers: bool = False
    loops: bool = False
    executes: bool = True
    flushes_subnormals: frozenset[DType] = frozenset()
    quirks: Mapping[str, str] = field(default_factory=dict[str, str])


@frozen
class PassConfig:
    """One entry of a pass list: the pass's registered name, a label, and its option fields."""

    name: str
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@frozen
class Options:
    """What the user allowed beyond the language's own rules.

    - ``fast_math``: approximate math functions, and products fused with sums anywhere.
    - ``reduced_precision``: matrix instructions for float32 (its factors rounded to TF32, beside bfloat16 to that, attention's weights as its values) and for 16-bit floats,
      and dot products of bfloat16; what one kernel computes between two such products is not rounded to these. In the
      same kernel products may be fused with sums, and exponentials and reciprocals may be the hardware's.
    - ``short_products``: the same for products of 16-bit floats alone; float32 stays exact.
    - ``fold_scales``: constant factors of contractions take up the constants that scale the result (``fast_math`` does, too).
    """

    fast_math: bool = False
    reduced_precision: bool = False
    fold_scales: bool = False
    short_products: bool = False

    def rounds(self, factor: DType) -> bool:
        """Whether the hardware may add up products of such floats in its own order and rounding."""
        return self.reduced_precision or (self.short_products and factor.bytes < DType.FLOAT32.bytes)


@frozen
class Target:
    """A device as the compiler sees it; frozen, and part of the cache key.

    - ``name``: the driver's.
    - ``settings``: the numbers behind schedules (`HardwareSettings`).
    - ``codegen``: "semtree" or "stripe", which is what the backend's compiler takes.
    - ``passes``: the schedule, in order.
    - ``model``: the hardware of an accelerator (`tile_ir.hardware`): clock_mhz, mem_units, exec_units, tx_units, buses.
    - ``nodes``: optional semtree nodes that the emitter takes; all others are rewritten before.
    - ``machine``: what the cost model knows (`tile_ir.machine`): caches, ports, latencies, bandwidths.
    - ``matrix``: matrix instructions (`tile_ir.matrix`) that the emitter can write, the preferred ones first.
    - ``options``: what the user allowed (`Options`); a device leaves it alone.
    """

    name: str
    settings: HardwareSettings = HardwareSettings()
    codegen: str = "semtree"
    passes: tuple[PassConfig, ...] = ()
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    nodes: frozenset[str] = frozenset()
    machine: Machine = field(default_factory=Machine)
    matrix: tuple[str, ...] = ()
    options: Options = Options()

    @staticmethod
    def preset(name: str) -> Target:
        """A target to begin with: "cpu", "gpu" or "accelerator" (which takes Stripe); TileDeviceError for any other name.

        All have plain numbers and no optional nodes; a document says ``"preset": "cpu"`` and states what differs.
        """
        return _preset(name)

    def resolved(self, **settings: Any) -> Target:
        """This target with probed hardware settings filled in."""
        cores = settings.get("cores", self.machine.cores)
        return replace(self, settings=replace(self.settings, **settings), machine=replace(self.machine, cores=cores))

    def to_json(self) -> str:
        """Canonical JSON text; `from_json(to_json()) == self`."""
        document = {
            "name": self.name,
            "codegen": self.codegen,
            "settings": to_document(self.settings),
            "machine": to_document(self.machine),
            "model": dict(self.model),
            "nodes": sorted(self.nodes),
            "matrix": list(self.matrix),
            "options": to_document(self.options),
            "passes": [{"name": p.label or p.name, p.name: dict(p.options)} for p in self.passes],
        }
        return json.dumps(document, indent=2, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Target:
        """Read a target document; a pass entry is ``{"name": label, "<pass>": {options}}``.

        A `preset` gives what the document does not state; tables are laid over its, lists replace its.
        TileDeviceError TILE-E414 where it is no JSON table, for what is unknown or of a wrong type, every field of settings and machine
        among it.
        """
        data = _table(text)
        _check_keys(data)
        base = Target.preset(str(data["preset"])) if "preset" in data else Target("")
        stated = {key: make(data[key]) for key, make in _STATED.items() if key in data}
        tables = {key: from_document(getattr(base, key), data.get(key, {}), key) for key in _TABLES}
        return replace(base, name=data["name"], **stated, **tables)


_TABLES = ("settings", "machine", "options")
_STATED: Mapping[str, Callable[[Any], Any]] = {
    "codegen": str,
    "passes": lambda entries: tuple(map(_pass_config, entries)),
    "nodes": frozenset,
    "matrix": tuple,
    "model": dict,
}
_KINDS: Mapping[str, tuple[str, type, type]] = {
    "name": ("text", str, str),
    "codegen": ("text", str, str),
    "passes": ("a list of tables", list, dict),
    "nodes": ("a list of names", list, str),
    "matrix": ("a list of names", list, str),
    "model": ("a table", dict, str),
}
"""What stands there: for people, its type, and that of what it consists of."""
_PRESETS = ("cpu", "gpu", "accelerator")


def _table(text: str) -> dict[str, Any]:
    try:
        data: Any = json.loads(text)
    except ValueError as problem:
        raise TileDeviceError(
            Diagnostic("TILE-E414", f"a target is a JSON document, this text is none: {problem}")
        ) from None
    except RecursionError:
        raise TileDeviceError(Diagnostic("TILE-E414", "a target is nested a few tables deep, not this deep")) from None
    if not isinstance(data, dict):
        raise TileDeviceError(Diagnostic("TILE-E414", f"a target is a table, not {data!r:.60}"))
    return cast("dict[str, Any]", data)


def _check_keys(data: Mapping[str, Any]) -> None:
    known = ("name", "preset", *_STATED, *_TABLES)
    problems = [
        Diagnostic("TILE-E414", f"a target has no {key!r}", hint=f"known: {', '.join(known)}")
        for key in data
        if key not in known
    ]
    problems += [
        Diagnostic("TILE-E414", f"{key} of a target is {what}, not {data[key]!r:.60}")
        for key, (what, kind, part) in _KINDS.items()
        if key in data and not (isinstance(data[key], kind) and all(isinstance(item, part) for item in data[key]))
    ]
    if "name" not in data:
        problems.append(Diagnostic("TILE-E414", "a target has a name, which this document does not state"))
    if problems:
        raise TileDeviceError(problems)


@cache
def _preset(name: str) -> Target:
    if name not in _PRESETS:
        hint = f"the presets are {', '.join(_PRESETS)}"
        raise TileDeviceError(Diagnostic("TILE-E414", f"there is no preset {name!r}", hint=hint))
    return Target.from_json(files("tile_ir").joinpath("targets", f"{name}.json").read_text(encoding="utf-8"))


def _pass_config(entry: Mapping[str, Any]) -> PassConfig:
    stated = [(key, options) for key, options in entry.items() if key != "name"]
    label = entry.get("name", "")
    if len(stated) != 1 or not isinstance(stated[0][1], dict) or not isinstance(label, str):
        raise TileDeviceError(
            Diagnostic("TILE-E414", f'a pass is {{"name": label, "PASS": {{options}}}}, not {entry!r:.60}')
        )
    ((name, options),) = stated
    return PassConfig(name, label or name, cast("dict[str, Any]", options))
