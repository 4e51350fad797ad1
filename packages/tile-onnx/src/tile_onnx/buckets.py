"""Buckets: inputs of any size run in programs of few sizes, padded where that is exact.

For each size that calls bring, the model is walked for that size and for its bucket, and `tile_onnx.padding` lays the two
programs side by side: it shows that what lies within the size does not depend on the padding, or names the node for which
it is not known. Nothing is compiled for the size itself.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from tile_ir import forking
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_runtime.function import BaseFunction
from tile_runtime.tensor import Tensor, asarray

from tile_onnx.engine import Engine
from tile_onnx.feeds import Argument
from tile_onnx.segments import Name, Piece, Segment, host_array, key_of, type_of
from tile_onnx.values import Array

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program, TensorType

    from tile_onnx.padding import General, Needs

PROGRAMS = 64
"""Padded programs that a model keeps; the least recently used goes first."""
SIZES = 1024
"""Sizes whose further inputs a padded program remembers."""

NUMBERS = 64
"""Elements up to which an input may be a value on which programs depend."""

Shape = tuple[int, ...]
Sizes = Mapping[str, int]


def checked_buckets(given: object, inputs: Sequence[Argument]) -> dict[str, tuple[int, ...]]:
    """Sizes of named dimensions in ascending order; TileTypeError for what no input has, or is no size."""
    if not isinstance(given, Mapping):
        raise _wrong(f"buckets are a mapping from dimensions to sizes, not {type(given).__name__}", _EXAMPLE)
    known = dict.fromkeys(d for a in inputs for d in a.shape or () if isinstance(d, str))
    found: dict[str, tuple[int, ...]] = {}
    for name, sizes in cast("Mapping[Any, Any]", given).items():
        if name not in known:
            names = f"named dimensions are {', '.join(known)}" if known else "no input has a dimension with a name"
            raise _wrong(f"buckets: no input has a dimension {name!r}", names)
        if not isinstance(sizes, (list, tuple, set, frozenset, range)) or not sizes or not all(map(_is_size, sizes)):  # pyright: ignore[reportUnknownArgumentType]
            raise _wrong(f"buckets: the sizes of {name!r} are whole numbers above 0, not {sizes!r:.80}", _EXAMPLE)
        found[name] = tuple(sorted({int(s) for s in cast("Sequence[int]", sizes)}))
    return found


_EXAMPLE = "such as buckets={'N': [1, 2, 4, 8]}"


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and cast(int, value) > 0


class Padded(BaseFunction):
    """A program as a function."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.name = "padded"
        self.key = object()
        self.inputs = tuple(p.name for p in program.inputs)
        self.outputs = tuple(public for public, _ in program.outputs)

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        return self.program


@dataclass(frozen=True, slots=True, eq=False)
class _Size:
    """What a padded program needs for one size, and what comes out."""

    function: Padded
    further: tuple[Array, ...]
    shapes: Mapping[str, Shape]
    """Of the program's outputs."""
    results: tuple[Any, ...]


class _Program:
    """A program for the sizes of buckets, with what all sizes seen so far need."""

    def __init__(self, piece: Piece, padded: Sizes) -> None:
        from tile_onnx.padding import Needs, values

        self.segment = _only(piece)
        self._padded = padded
        self._program = self.segment.program.program
        self._place = {name: k for k, name in enumerate(values(self._program))}
        self._needs = Needs()
        self._seen: list[list[Shape]] = []
        self._general: General | None = None
        self._function = Padded(self._program)
        self.sizes: OrderedDict[Any, _Size | None] = OrderedDict()
        """None of sizes that lead to another program, such as 1 where operators broadcast: they run in their own."""

    def admit(self, key: Any, piece: Piece, sizes: Sizes) -> None:
        """Remembers a size; TileTypeError where padding it is not known to be exact."""
        from tile_onnx.padding import OtherForm, Refused, numbers

        small = _only(piece).program.program
        try:
            general = self._extended(small)
        except OtherForm:
            self.sizes[key] = None
            return
        except Refused as reason:
            raise _refused(sizes, self._padded, reason.text) from None
        types = small.types()
        shapes = {name: types[value].shape for name, value in small.outputs}
        further = tuple(numbers(general, small))
        self.sizes[key] = _Size(self._function, further, shapes, piece.results)
        while len(self.sizes) > SIZES:
            self.sizes.popitem(last=False)

    def _extended(self, small: Program) -> General:
        """The general program, made anew where a size needs more than those before it."""
        from tile_onnx.padding import compared, generalised, values

        needs = self._needs | compared(small, self._program)
        types = small.types()
        seen = [*self._seen, [types[name].shape for name in values(small)]]
        marks, before = self._marks(needs, seen), self._marks(needs, self._seen)
        alike = len(set(marks.values())) == len(set(before.values()))
        if self._general is None or needs != self._needs or not alike:
            self._needs, self._seen = needs, seen
            self._general = generalised(self._program, needs, marks)
            self._function = Padded(self._general.program)
            self.sizes.clear()
        return self._general

    def _marks(self, needs: Needs, seen: Sequence[Sequence[Shape]]) -> dict[tuple[int, int], tuple[int, ...]]:
        """The limits of masks for the sizes seen: masks that always had the same one share an input."""
        keys = {(self._place[m.tensor], m.axis) for m in needs.masks}
        return {(value, axis): tuple(shapes[value][axis] for shapes in seen) for value, axis in keys}


class Buckets:
    """Runs a model in programs for the sizes of its buckets. Safe to use from any thread."""

    def __init__(
        self, engine: Engine, inputs: Sequence[Argument], optional: Sequence[str], sizes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._engine = engine
        self._optional = optional
        self._inputs = {a.name: a for a in inputs}
        self._sizes = sizes
        self._programs: OrderedDict[Any, _Program] = OrderedDict()
        self._lock = forking.rlock()

    def run(self, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
        """As `Engine.run`; TileTypeError names the node for which padding is not known to be exact."""
        found = self._found(feeds, wanted)
        if found is None:
            return self._engine.run(feeds, wanted)
        program, size = found
        segment, device = program.segment, self._engine.evaluator().device
        shapes = [p.shape for p in segment.placeholders]
        given = [_filled(feeds[n], shape) for n, shape in zip(segment.inputs, shapes, strict=True)]
        made: Any = self._engine.evaluator()(size.function, *given, *size.further)
        several = (made,) if len(segment.outputs) == 1 else made
        cut = {n: _cut(v, size.shapes[n]) for n, v in zip(segment.outputs, several, strict=True)}
        results = {n: _delivered(r, feeds, cut) for n, r in zip(wanted, size.results, strict=True)}
        on_device = any(isinstance(v, Tensor) for v in feeds.values())
        return {n: asarray(v, device) if on_device else host_array(v) for n, v in results.items()}

    def prepare(self, samples: Mapping[str, Any], numbers: Mapping[str, Any], wanted: tuple[str, ...]) -> bool:
        """Compiles the program of the bucket of these inputs; False where there is none for them."""
        found = self._found({**samples, **numbers}, wanted)
        if found is not None:
            program, size = found
            self._engine.evaluator().prepare(size.function, *program.segment.placeholders, *size.further)
        return found is not None

    def check(self) -> None:
        """TileTypeError where padding to the largest buckets is known not to be exact; says nothing of other inputs.

        Models of which an input has further dimensions without a size are checked when they run.
        """
        largest = {n: sizes[-1] for n, sizes in self._sizes.items()}
        feeds = {a.name: _sample(a, largest) for a in self._inputs.values() if a.name not in self._optional}
        if any(v is None for v in feeds.values()):
            return
        wanted = self._engine.graph.outputs
        padded = self._dimensions(feeds)
        try:
            program = self._made(feeds, padded, wanted)
            self._probe(program, feeds, padded, wanted)
        except _Unknown:
            return

    def _found(self, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> tuple[_Program, _Size] | None:
        """The program for these inputs, and what it needs; None where they are to run in a program of their own."""
        sizes = self._dimensions(feeds)
        padded = {n: _bucket(size, self._sizes[n]) for n, size in sizes.items()}
        if not padded or any(b is None for b in padded.values()):
            return None
        with self._lock:
            try:
                program = self._program(feeds, cast(Sizes, padded), wanted)
                size = self._size(program, feeds, wanted)
            except _Unknown as reason:
                raise _refused(sizes, cast(Sizes, padded), str(reason)) from None
        return None if size is None else (program, size)

    def _program(self, feeds: Mapping[str, Any], padded: Sizes, wanted: tuple[str, ...]) -> _Program:
        types = self._types(feeds, padded)
        key = self._key(types, feeds, wanted)
        program = self._programs.get(key)
        if program is None:
            program = self._made(feeds, padded, wanted)
            with suppress(TileTypeError, _Unknown):
                self._probe(program, feeds, padded, wanted)
            key = self._key(types, feeds, wanted)  # the walks may have found further inputs whose numbers count
            self._programs[key] = program
            while len(self._programs) > PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return program

    def _made(self, feeds: Mapping[str, Any], padded: Sizes, wanted: tuple[str, ...]) -> _Program:
        return _Program(self._walked(self._types(feeds, padded), feeds, wanted), padded)

    def _probe(self, program: _Program, feeds: Mapping[str, Any], padded: Sizes, wanted: tuple[str, ...]) -> None:
        """Tries a size between this bucket and the one before, so that the program has what others need, too."""
        sizes = {n: _between(b, self._sizes[n]) for n, b in padded.items()}
        types = self._types(feeds, sizes)
        program.admit(tuple(types.items()), self._walked(types, feeds, wanted), sizes)

    def _size(self, program: _Program, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> _Size | None:
        types = self._types(feeds, {})
        key = tuple(types.items())
        if key not in program.sizes:
            program.admit(key, self._walked(types, feeds, wanted), self._dimensions(feeds))
        program.sizes.move_to_end(key)
        return program.sizes[key]

    def _walked(self, types: Mapping[str, Any], feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> Piece:
        numbers = {n: v for n, v in feeds.items() if v is not None and _few(v)}
        return self._engine.plan(types, {n: host_array(v) for n, v in numbers.items()}, wanted)[0]

    def _key(self, types: Mapping[str, Any], feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> Any:
        numbers = sorted(self._engine.values & feeds.keys())
        return (wanted, *types.items(), *((n, key_of(host_array(feeds[n]))) for n in numbers))

    def _types(self, feeds: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
        """Types of inputs with other sizes for their named dimensions."""
        return {n: _resized(type_of(v), self._inputs[n].shape, sizes) for n, v in feeds.items()}

    def _dimensions(self, feeds: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of the dimensions that have buckets; TileTypeError where two inputs contradict one another."""
        found: dict[str, tuple[int, str]] = {}
        for name, value in feeds.items():
            for dim, size in _named(value, self._inputs[name].shape):
                if dim in self._sizes and found.setdefault(dim, (size, name))[0] != size:
                    first, other = found[dim]
                    message = f"dimension {dim!r} is {first} of input {other!r} and {size} of input {name!r}"
                    raise TileTypeError(Diagnostic("TILE-E903", message))
        return {dim: size for dim, (size, _) in found.items()}


def _sample(wanted: Argument, sizes: Sizes) -> Array | None:
    """An array of an input's shape; None where that is not known."""
    dims = [sizes.get(d) if isinstance(d, str) else d for d in wanted.shape or (None,)]
    if wanted.kind != "tensor" or any(d is None for d in dims):
        return None
    return np.broadcast_to(np.zeros((), wanted.dtype), cast(Any, dims))


class _Unknown(Exception):
    """A model of which nothing can be said before it runs."""


def _only(piece: Piece) -> Segment:
    """The one device program of a model."""
    if piece.asks:
        asked = ", ".join(sorted({a.name for a in piece.asks}))
        raise _Unknown(f"what the model does depends on the numbers of {asked}")
    segments = [s for s in piece.steps if isinstance(s, Segment)]
    if len(segments) != 1 or len(piece.steps) != 1:
        raise _Unknown("the model is not one device program")
    return segments[0]


def _refused(sizes: Sizes, padded: Sizes, why: str) -> TileTypeError:
    pairs = [f"{n!r} from {size} to {padded[n]}" for n, size in sizes.items() if padded[n] != size]
    hint = "without buckets for this dimension each of its sizes has a program of its own"
    return TileTypeError(Diagnostic("TILE-E906", f"dimension {', '.join(pairs)} cannot be padded: {why}", hint=hint))


def _wrong(message: str, hint: str) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E906", message, hint=hint))


def _bucket(size: int, sizes: Sequence[int]) -> int | None:
    """The smallest bucket that holds a size."""
    return next((s for s in sizes if s >= size), None)


def _between(bucket: int, sizes: Sequence[int]) -> int:
    """A size in the middle of those that go into a bucket."""
    before = max((s for s in sizes if s < bucket), default=0)
    return before + (bucket - before + 1) // 2


def _named(value: Any, shape: Sequence[Any] | None) -> Iterator[tuple[str, int]]:
    if shape is not None and hasattr(value, "shape"):
        yield from ((d, int(s)) for d, s in zip(shape, value.shape, strict=True) if isinstance(d, str))


def _resized(type: Any, shape: Sequence[Any] | None, sizes: Sizes) -> Any:
    if shape is None or type is None or len(type) != 2 or not isinstance(type[0], np.dtype):
        return type
    dtype, own = cast("tuple[np.dtype[Any], Shape]", type)
    return dtype, tuple(sizes.get(d, s) if isinstance(d, str) else s for d, s in zip(shape, own, strict=True))


def _few(value: Any) -> bool:
    return hasattr(value, "shape") and math.prod(value.shape) <= NUMBERS


def _filled(value: Any, shape: Shape) -> Any:
    """A value with zeros behind its ends."""
    if tuple(value.shape) == shape:
        return value
    array = host_array(value)
    found = np.zeros(shape, array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found


def _cut(value: Any, shape: Shape) -> Any:
    return value if tuple(value.shape) == shape else np.ascontiguousarray(host_array(value)[tuple(map(slice, shape))])


def _delivered(item: Any, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    if isinstance(item, Name):
        return outputs[item.name] if item.name in outputs else np.array(host_array(feeds[item.name]))
    if isinstance(item, list):
        return [_delivered(i, feeds, outputs) for i in cast("list[Any]", item)]
    return item
