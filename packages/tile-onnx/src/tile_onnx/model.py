"""Models: what `load` gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from onnx import ModelProto
from tile_ir import forking
from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_onnx import support
from tile_onnx.engine import Engine
from tile_onnx.feeds import Argument, checked, checked_outputs, refused, unknown
from tile_onnx.language import Language
from tile_onnx.reading import Imported, read
from tile_onnx.segments import Piece, Segment, type_of
from tile_onnx.values import Array, is_array
from tile_onnx.warm import WarmCalls

if TYPE_CHECKING:
    from tile_hal.interfaces import Device
    from tile_runtime.compose import Composition
    from tile_runtime.evaluator import Evaluator

    from tile_onnx.buckets import Buckets
    from tile_onnx.explain import KernelTime
    from tile_onnx.graph import Graph


def load(
    model: str | Path | bytes | ModelProto,
    device: Device | Evaluator | str | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
) -> Model:
    """The model of a file, of a file's bytes, or of a message, to run on `device` (None: the default one).

    An Evaluator instead of a device brings options of its own, such as reduced precision.
    `buckets` has sizes for named dimensions: an input is padded to the next of them, and outputs are cut, so that a few
    programs serve every size up to the largest; beyond it each size has a program of its own.
    TileError for what is no valid model, for operators that cannot run, all of them at once, and for buckets where
    padding is not known to leave results as they are. Nothing is compiled yet, and no device opened.
    """
    return Model(read(model), device, buckets)


class Model:
    """An imported model. Programs are compiled for the shapes that calls bring; safe to use from any thread."""

    def __init__(
        self,
        imported: Imported,
        device: Device | Evaluator | str | None,
        buckets: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._imported = imported
        self._device = device
        self._made: Evaluator | None = None
        self._settled = 0
        self._lock = forking.rlock()
        _check(imported)
        language = Language(imported.opsets, imported.functions)
        self._engine = Engine(imported.graph, language, lambda: self.evaluator)
        self._warm = WarmCalls(self._engine)
        self._buckets = self._padding(buckets) if buckets is not None else None

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """What a call gives: names, dtypes, and shapes, whose dimensions are sizes, names, or None (any size).

        Those that have a value of their own stand last and may be left out.
        """
        return self._imported.inputs

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """What a call gets."""
        return self._imported.outputs

    @property
    def opsets(self) -> Mapping[str, int]:
        """The version of each operator set that the model is written in ("" is ai.onnx)."""
        return self._imported.opsets

    @property
    def metadata(self) -> Mapping[str, str]:
        """What its author wrote beside the graph: texts by name, such as the labels of its classes."""
        return self._imported.metadata

    @property
    def evaluator(self) -> Evaluator:
        """What compiles and runs its programs; made, and its device opened, when first needed."""
        from tile_runtime.evaluator import Evaluator

        with self._lock:
            if self._made is None:
                given = self._device
                self._made = (
                    given if isinstance(given, Evaluator) else Evaluator(given, fold_scales=True, short_products=True)
                )
            return self._made

    def run(self, feeds: Mapping[str, Any], outputs: str | Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name, all of them or those asked for, for inputs by name.

        Inputs are arrays (or numbers, lists) of the dtypes and shapes that `inputs` states, lists of arrays for
        sequences. Results are arrays, but Tensors where an input is a Tensor; lists of them for sequences, None for an
        optional that is absent. The first call compiles; other shapes may run without a program
        until one pays (see `newcomers`), so their results may differ in rounding. TileTypeError names inputs that do not fit.
        """
        key = self._warm.key(feeds, outputs) if self._buckets is None else None
        ready = self._warm.get(key)
        if ready is not None:
            return ready.run(feeds)
        values, wanted = checked(self.inputs, feeds, self._imported.defaults), self._wanted(outputs)
        found = (self._buckets or self._engine).run(values, wanted)
        self._warm.keep(key, feeds, values, wanted)
        self._settle()
        return found

    def __call__(self, *inputs: Any, **named: Any) -> dict[str, Any]:
        """The same for inputs by position, in the order of `inputs`, and by name."""
        names = [a.name for a in self.inputs]
        if len(inputs) > len(names):
            message = f"the model takes {len(names)} inputs ({', '.join(names)}), {len(inputs)} were given"
            raise TileTypeError(Diagnostic("TILE-E902", message))
        twice = next((n for n in names[: len(inputs)] if n in named), None)
        if twice is not None:
            raise TileTypeError(Diagnostic("TILE-E902", f"input {twice!r} is given twice, by position and by name"))
        return self.run(dict(zip(names, inputs, strict=False)) | named)

    def prepare(self, shapes: Mapping[str, Any] | None = None, outputs: str | Sequence[str] | None = None) -> None:
        """Compiles now for inputs of these shapes, so that calls find the programs.

        `shapes` has a shape for each input, or the value itself where shapes inside the model depend on it; inputs
        whose shape is fixed may be left out. What comes after a value that only a run knows is compiled by the run.
        """
        if not self._prepared_in_buckets(shapes or {}, outputs):
            for segment in _segments(self._plan(shapes, outputs)):
                self.evaluator.prepare(segment.program, *segment.placeholders)
        self._settle()

    def _prepared_in_buckets(self, shapes: Mapping[str, Any], outputs: str | Sequence[str] | None) -> bool:
        if self._buckets is None:
            return False
        return self._buckets.prepare(self._samples(shapes), self._numbers(shapes), self._wanted(outputs))

    def _settle(self) -> None:
        """Gives back the memory of the file after each compilation: programs hold what they need of it."""
        if self._imported.file is not None and self._settled != self._engine.walks:
            self._settled = self._engine.walks
            self._imported.file.release()

    def check(self, shapes: Mapping[str, Any] | None = None) -> None:
        """TileTypeError with every node that cannot run on inputs of these shapes (see `prepare`); nothing is compiled."""
        self._plan(shapes, None)

    def random_feeds(self, shapes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Inputs of these shapes for trying a model: floats from [0, 1), integers 0 and 1; the same in every call."""
        draw, given = np.random.default_rng(0), shapes or {}
        made = {n: v for n, v in self._samples(given).items() if is_array(v)}
        return {n: v if n in given and not _is_shape(given[n]) else _drawn(draw, v) for n, v in made.items()}

    def explain(
        self,
        shapes: Mapping[str, Any] | None = None,
        outputs: str | Sequence[str] | None = None,
        *,
        kernels: bool = False,
    ) -> str:
        """Inputs, outputs, and what runs where for inputs of these shapes (see `prepare`); with `kernels` each kernel."""
        from tile_onnx.explain import explained, summary

        pieces = self._plan(shapes, outputs)
        about = summary(self.inputs, self.outputs, self.opsets, self.graph)
        return "\n".join([*about, *explained(pieces, self._engine.values, self.evaluator, kernels=kernels)])

    def profile(self, feeds: Mapping[str, Any], outputs: str | Sequence[str] | None = None) -> list[KernelTime]:
        """The time of every kernel that a run with these inputs launches, with the nodes that it computes."""
        from tile_onnx.explain import kernel_times

        values = checked(self.inputs, feeds, self._imported.defaults)
        return kernel_times(self._engine.trace(values, self._wanted(outputs)), self.evaluator)

    def function(self, shapes: Mapping[str, Any] | None = None, parameters: Sequence[str] = ()) -> Composition:
        """The model as one Tile function of its inputs and of `parameters`, initializers by name, in this order.

        It can be differentiated (`tile.vjp`), composed and lowered as any other. `shapes` is as in `prepare`.
        TileTypeError where a model is more than one device program, or has a sequence or nothing as an output.
        """
        from tile_onnx.differentiable import as_function

        return as_function(self._engine, self._samples(shapes or {}), self._numbers(shapes or {}), parameters)

    @property
    def graph(self) -> Graph:
        """The outermost graph: nodes in an order in which they can run, and the initializers as arrays by name."""
        return self._imported.graph

    def _padding(self, buckets: Mapping[str, Sequence[int]]) -> Buckets:
        from tile_onnx.buckets import Buckets, checked_buckets

        found = Buckets(self._engine, self.inputs, self._imported.defaults, checked_buckets(buckets, self.inputs))
        found.check()
        return found

    def _numbers(self, shapes: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs that were given by value."""
        samples = self._samples(shapes)
        return {n: samples[n] for n, v in shapes.items() if not _is_shape(v)}

    def _plan(self, shapes: Mapping[str, Any] | None, outputs: str | Sequence[str] | None) -> list[Piece]:
        types = {n: type_of(v) for n, v in self._samples(shapes or {}).items()}
        return self._engine.plan(types, self._numbers(shapes or {}), self._wanted(outputs))

    def _samples(self, shapes: Mapping[str, Any]) -> dict[str, Any]:
        """An array of each input's shape, without memory of its own; the values given."""
        known = {a.name: a for a in self.inputs}
        wrong = [unknown(n, known) for n in shapes if n not in known]
        if wrong:
            raise TileTypeError(wrong)
        feeds = {n: _blank(known[n], v) if _is_shape(v) else v for n, v in shapes.items()}
        for wanted in self.inputs:
            if wanted.name not in feeds and wanted.name not in self._imported.defaults:
                if wanted.shape is None or not all(isinstance(d, int) for d in wanted.shape):
                    sizes = wanted.example
                    hint = (
                        f"such as {{{wanted.name!r}: ({sizes})}}; on the command line --shape '{wanted.name}=[{sizes}]'"
                    )
                    raise TileTypeError(
                        Diagnostic("TILE-E904", f"input {wanted.name!r} is {wanted}: which shape?", hint=hint)
                    )
                feeds[wanted.name] = _blank(wanted, wanted.shape)
        return checked(self.inputs, feeds, self._imported.defaults)

    def _wanted(self, outputs: str | Sequence[str] | None) -> tuple[str, ...]:
        return checked_outputs(self._imported.graph.outputs, outputs)


def _check(imported: Imported) -> None:
    """TileTypeError for what cannot run whatever the shapes are."""
    local = imported.functions
    problems = support.foreseen(imported.graph.pruned(imported.graph.outputs).nodes, imported.opsets, local)
    found = [*refused(imported.inputs), *(p.diagnostic for p in dict.fromkeys(problems))]
    if found:
        raise TileTypeError(found)


def _segments(pieces: Sequence[Piece]) -> list[Segment]:
    return [step for piece in pieces for step in piece.steps if isinstance(step, Segment)]


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(d, (int, np.integer)) for d in cast("list[Any]", value))


def _blank(wanted: Argument, shape: Any) -> Any:
    try:
        return np.broadcast_to(np.zeros((), wanted.dtype), tuple(shape))
    except ValueError as problem:
        message = f"input {wanted.name!r} is {wanted}; there is no shape {list(shape)}: {problem}"
        raise TileTypeError(Diagnostic("TILE-E904", message)) from None


def _drawn(draw: Any, like: Array) -> Array:
    if like.dtype.kind in "iub":
        return draw.integers(0, 2, like.shape, np.int64).astype(like.dtype)
    return draw.random(like.shape, np.float64).astype(like.dtype)
