"""Walks a graph: known values are computed on the host, everything else becomes one composition of Tile functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from onnx import AttributeProto, NodeProto
from tile_ir.diagnostics import Diagnostic, TileError, TileTypeError
from tile_runtime.ops.unsupported import explained
from tile_runtime.ops.values import Array, NotInTile, as_array
from tile_runtime.provenance import provenance
from tile_runtime.symbols import Symbol, roots

from tile_onnx import functions, host, support
from tile_onnx.graph import Graph, with_attributes
from tile_onnx.language import Language
from tile_onnx.memory import machine_memory
from tile_onnx.node import Node, RunOnHost, Unlooped, Unsupported
from tile_onnx.registry import Entry, find
from tile_onnx.segments import Ask, Recorder, Suspended
from tile_onnx.values import Held, Poison, Value, described, is_array, is_known, leaves

if TYPE_CHECKING:
    from tile_runtime.evaluator import Evaluator

VALUED = {"f": 16, "i": 64, "u": 64, "b": 64}
"""Elements up to which an input of one row is a value (by kind of dtype) where something known is computed from it."""


@dataclass(slots=True)
class Frame:
    """A graph that is being walked: its values so far, and the frame around it."""

    graph: Graph
    path: str
    opsets: Mapping[str, int]
    outer: Frame | None = None
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict[str, AttributeProto])
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    at: int = 0

    def find(self, name: str) -> Value:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.values:
                return frame.values[name]
            if name in frame.graph.constants:
                return frame.graph.constants[name]
            frame = frame.outer
        raise KeyError(name)

    def live(self) -> Iterator[Value]:
        """What this graph and those around it still need."""
        frame: Frame | None = self
        while frame is not None:
            uses = frame.graph.last_use
            yield from (v for n, v in frame.values.items() if uses.get(n, -1) >= frame.at)
            frame = frame.caller if isinstance(frame, _Call) else frame.outer


@dataclass(slots=True)
class _Call(Frame):
    """The body of a function: it sees nothing of the caller's values, which stay alive all the same."""

    caller: Frame | None = None


class Poisoned(Exception):
    """A subgraph that cannot be converted: its nodes were reported."""


class GraphRunner(Protocol):
    """What runs the graph that is walked, and graphs inside of it."""

    graph: Graph
    language: Language
    evaluator: Callable[[], Evaluator]

    def inner(self, graph: Graph, language: Language, path: str) -> GraphRunner:
        """One for a subgraph, whose values are called `path` and their name."""
        ...

    def run(self, feeds: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
        """Outputs by name."""
        ...


class Walk:
    """One walk over a model's graph, for given types and answers."""

    def __init__(self, engine: GraphRunner, recorder: Recorder) -> None:
        self._engine = engine
        self._recorder = recorder
        self._frame: Frame | None = None
        self.problems: list[support.Problem] = []
        self.cause: Exception | None = None
        """The first exception behind them, for whoever mends a converter."""
        self._attempts = 0
        """Loops that are being traced, one inside of the other."""
        self._turning: dict[int, Symbol] = {}
        """What is another value in each round of them."""

    def run(self, graph: Graph, values: dict[str, Value], path: str) -> list[Value]:
        """The outputs of the outermost graph; TileTypeError for inputs that no machine like this one can hold."""
        for name, value in values.items():
            if isinstance(value, Symbol) and _too_large(value):
                message = f"input {name!r} is {described(value)}, more than the memory of this machine"
                raise TileTypeError(Diagnostic("TILE-E904", message))
        language = self._engine.language
        return self._walk(Frame(graph, path, language.opsets, None, language.attributes, values))

    def _walk(self, frame: Frame) -> list[Value]:
        before, self._frame = self._frame, frame
        for k, proto in enumerate(frame.graph.nodes):
            frame.at = k
            self._node(frame, proto)
        frame.at = len(frame.graph.nodes)
        self._frame = before
        return [self._recorder.current(frame.find(name)) for name in frame.graph.outputs]

    def _node(self, frame: Frame, proto: NodeProto) -> None:
        values = [self._recorder.current(frame.find(n)) if n else None for n in proto.input]
        results = self._results(frame, with_attributes(proto, frame.attributes), values)
        for name, value in zip(proto.output, results, strict=False):
            if name:
                frame.values[name] = value
                self._recorder.name(value, frame.path + name)

    def _results(self, frame: Frame, proto: NodeProto, values: list[Value]) -> Sequence[Value]:
        if _poisoned(values):
            return [Poison()] * len(proto.output)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        own = proto.name or next(filter(None, proto.output), proto.op_type)
        node = Node(proto, frame.opsets.get(domain, 0), values, self, frame.path + own, frame)
        try:
            with provenance(own):
                return self._checked(node, self.converted(node))
        except (Suspended, Unlooped):
            raise
        except Poisoned:
            pass  # what is wrong stands among the problems
        except Exception as reason:  # a malformed node may break a converter in any way
            self.problems.append(support.problem(node, *explained(reason)))
            self.cause = self.cause or reason
        return [Poison()] * len(proto.output)

    def _checked(self, node: Node, results: Value | tuple[Value, ...]) -> Sequence[Value]:
        given = cast("tuple[Value, ...]", results) if isinstance(results, tuple) else (results,)
        several = [as_array(v) for v in given]
        missing = [o for k, o in enumerate(node.proto.output) if o and k >= len(several)]
        if missing:
            raise Unsupported(f"output {missing[0]!r} is not computed", "this version gives fewer outputs")
        for leaf in leaves(several):
            if isinstance(leaf, Symbol) and _too_large(leaf):
                raise Unsupported(f"it gives {described(leaf)}, more than the memory of this machine")
        return several

    # --- the ways to convert a node -------------------------------------------------------------------

    def converted(self, node: Node) -> Any:
        """What a node gives: one value, or a tuple of them."""
        local = self._engine.language.functions.get((node.domain, node.op))
        if local is not None:
            return self._call(node, functions.local(local))
        if not node.domain and node.op in support.REFUSED:
            raise Unsupported(*support.REFUSED[node.op])
        entry = find(node.domain, node.op, node.opset)
        try:
            return self._by_entry(node, entry)
        except NotInTile:
            return self._by_reference(node)

    def _by_entry(self, node: Node, entry: Entry | None) -> Any:
        if entry is not None and entry.on_host:
            return self._on_host(node, partial(entry.function, node))
        if host.folds(node):
            try:
                return host.Reference(node.proto, node.domain, node.opset)(*node.values)
            except host.NotEvaluated:
                pass  # the converter may know it
        if any(isinstance(leaf, Held) for v in node.values for leaf in leaves(v)) and not _passes(node):
            raise RunOnHost
        if entry is not None:
            return entry.function(node)
        body = functions.body(node)
        if body is None:
            raise Unsupported(*functions.absent(node))
        return self._call(node, body)

    def _by_reference(self, node: Node) -> Any:
        """ONNX's reference, now or between device programs."""
        return self._on_host(node, host.Reference(node.proto, node.domain, node.opset))

    def _on_host(self, node: Node, function: Any) -> Any:
        if all(is_known(v) for v in node.values):
            try:
                return function(*node.values)
            except host.NotEvaluated as problem:
                raise Unsupported(f"ONNX's reference implementation fails on it: {problem}") from None
        self._refuse_turning(node.values)
        names = [self._path(node, k) for k, o in enumerate(node.proto.output) if o]
        made = self._recorder.work(f"{node.op} {node.name!r}", _several(node, function), node.values, names, self._live)
        given = iter(made)
        return tuple(next(given) if o else None for o in node.proto.output)

    def _path(self, node: Node, k: int) -> str:
        return cast(Frame, node.frame).path + node.proto.output[k]

    def _call(self, node: Node, body: functions.Body) -> tuple[Value, ...]:
        """The outputs of a function's body, walked in place; only those that the node has a name for."""
        wanted = {k: o for k, o in enumerate(body.graph.outputs) if node.wants(k)}
        graph = body.graph.pruned(tuple(wanted.values()))
        values = dict.fromkeys(graph.inputs) | dict(zip(graph.inputs, node.values, strict=False))
        given = {**body.defaults, **{a.name: a for a in node.proto.attribute}}
        frame = _Call(graph, _inside(node), body.opsets, None, given, values, caller=self._frame)
        made = dict(zip(wanted, self._walk(frame), strict=True))
        return tuple(made.get(k) for k in range(node.count))

    def defined(self, node: Node, text: str) -> tuple[Value, ...]:
        """The outputs of a function that a converter gives as text, walked in place."""
        return self._call(node, functions.written(text))

    def enter(self, node: Node, graph: Graph, inputs: Sequence[Value], step: str) -> list[Value]:
        """The outputs of a subgraph; it sees the values around it."""
        outer = cast(Frame, node.frame)
        values = dict(zip(graph.inputs, inputs, strict=False))
        path = _inside(node, step)
        if self._attempts:
            new = (
                v for v in inputs if isinstance(v, Symbol) and v.is_placeholder and id(v) not in self._recorder.names
            )
            self._turning |= {id(v): v for v in new}
        for name, value in values.items():
            self._recorder.name(value, path + name)
        made = self._walk(Frame(graph, path, outer.opsets, outer, outer.attributes, values))
        if _poisoned(made):
            raise Poisoned
        return made

    def attempt(self, function: Callable[[], Any]) -> Any:
        """What `function` gives, which traces a loop; None where its body cannot be one."""
        problems, cause, frame = len(self.problems), self.cause, self._frame
        self._attempts += 1
        try:
            return function()
        except (Unlooped, Poisoned, TileError):
            del self.problems[problems:]
            self.cause, self._frame = cause, frame
            return None
        finally:
            self._attempts -= 1

    def _refuse_turning(self, values: Iterable[Value]) -> None:
        """Unlooped where values depend on the round of a loop that is being traced."""
        symbols = (leaf for v in values for leaf in leaves(v) if isinstance(leaf, Symbol))
        if self._turning and any(id(root) in self._turning for root in roots(symbols)):
            raise Unlooped

    def later(self, node: Node, graph: Graph, inputs: Sequence[Value], function: Callable[..., Any]) -> list[Value]:
        """The outputs of `function` of an engine for a subgraph, names and values of what it captures, and the inputs.

        It runs between device programs.
        """
        if self._attempts:
            raise Unlooped
        outer = cast(Frame, node.frame)
        captured = {n: self._recorder.current(outer.find(n)) for n in sorted(graph.captured)}
        alone, further = _specialised(graph, captured)
        language = replace(self._engine.language, opsets=outer.opsets, attributes=outer.attributes)
        engine = self._engine.inner(alone, language, _inside(node))
        names = tuple(further)

        def work(*values: Any) -> Any:
            return function(engine, dict(zip(names, values, strict=False)), *values[len(names) :])

        outputs = [outer.path + o for o in node.proto.output if o]
        label = f"{node.op} {node.name!r}"
        return self._recorder.work(label, work, [*further.values(), *inputs], outputs, self._live, of_arrays=False)

    # --- numbers --------------------------------------------------------------------------------------

    @property
    def evaluator(self) -> Evaluator:
        return self._engine.evaluator()

    def host_array(self, value: Symbol | Held, name: str) -> Array:
        """The numbers of a value that is not known: inputs become values, else a device program ends."""
        self._refuse_turning([value])
        if self.problems:
            raise Suspended(())
        if isinstance(value, Symbol) and value.source is not None:
            self._ask_inputs(value)
        if self._attempts:
            raise Unlooped  # the program would have to end within the loop
        return self._recorder.array(value, self._live, name)

    def _ask_inputs(self, value: Symbol) -> None:
        """Asks for the numbers of the model's inputs instead, where few numbers are all that a value depends on."""
        needed = roots([value])
        if needed and all(_may_be_value(s) and self._recorder.names[id(s)] in self._recorder.inputs for s in needed):
            asks = [Ask(self._recorder.names[id(s)], True) for s in needed]
            if not any(ask in self._recorder.answers for ask in asks):
                raise Suspended(asks)

    def _live(self) -> Iterable[Value]:
        return self._frame.live() if self._frame is not None else ()


def _too_large(symbol: Symbol) -> bool:
    return math.prod(symbol.shape) * symbol.dtype.bytes > machine_memory()


def _poisoned(values: Iterable[Value]) -> bool:
    return any(isinstance(leaf, Poison) for value in values for leaf in leaves(value))


def _inside(node: Node, step: str = "") -> str:
    """What stands before the names of values inside a node: its first output, for names of nodes may occur twice."""
    output = next(filter(None, node.proto.output), node.op)
    return (
        f"{cast(Frame, node.frame).path}{output} > {step} > " if step else f"{cast(Frame, node.frame).path}{output} > "
    )


def _passes(node: Node) -> bool:
    """Operators that hand on their inputs, whatever they are."""
    return node.domain == "" and node.op in {"Identity", "Shape", "Size", "If", "Loop", "Optional", "OptionalGetElement",
                                             "OptionalHasElement", "SequenceConstruct", "SequenceInsert", "SequenceAt"}  # fmt: skip


def _may_be_value(symbol: Symbol) -> bool:
    kind = symbol.dtype.numpy.kind
    return len(symbol.shape) <= 1 and int(np.prod(symbol.shape)) <= VALUED.get(kind, 0)


def _several(node: Node, function: Any) -> Any:
    """`function`, which runs on the host between device programs; TileTypeError for numbers that do not fit the operator."""

    def call(*arrays: Any) -> tuple[Any, ...]:
        try:
            made: Any = function(*arrays)
        except TileError:
            raise
        except Exception as problem:
            message = f"{node.op} {node.name!r} cannot take what it was given: {problem}"
            raise TileTypeError(Diagnostic("TILE-E903", message)) from problem
        return cast("tuple[Any, ...]", made) if isinstance(made, tuple) else (made,)

    return call


def _specialised(graph: Graph, captured: Mapping[str, Any]) -> tuple[Graph, dict[str, Any]]:
    """A subgraph that stands alone: known values of the graphs around it are constants, the others further inputs."""
    known = {n: v for n, v in captured.items() if is_array(v)}
    others = {n: v for n, v in captured.items() if n not in known}
    alone = Graph(
        graph.name, (*graph.inputs, *others), graph.outputs, graph.nodes, {**graph.constants, **known}, graph.infos
    )
    return alone, others
