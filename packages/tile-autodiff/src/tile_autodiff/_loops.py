"""Derivatives of loops: a loop over the same rounds backwards, from the values that each round began with.

The loop itself is made to stack those values. What a round gives the captured values is added up as it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.liveness import used_by
from tile_ir.program.nodes import Elementwise, Loop, Param, Program, TensorType

from tile_autodiff._contractions import Gradients
from tile_autodiff._emit import Graph

Varied = Callable[[Program, Sequence[str]], set[str]]
"""The values of a program that depend on some of its inputs by operations that pass derivatives on."""
Pulled = Callable[[Program, Sequence[str]], Program]
"""The vector-Jacobian product of a program with respect to some of its inputs."""


@frozen
class Varying:
    """What of a loop depends on what is derived by."""

    inputs: tuple[int, ...]
    """Inputs of the body."""
    outputs: tuple[int, ...]
    """Outputs of the body, which are numbered as the loop's results are."""


def varying(op: Loop, given: set[str], varied: Varied) -> Varying:
    """What varies in a loop where the values `given` do; what is carried may vary from a later round on."""
    outside = (*op.carries, *op.slices, *op.captured)
    names = [p.name for p in op.body.inputs]
    inputs = {k for k, name in enumerate(outside) if name in given and op.body.inputs[k].type.dtype.is_float}
    if op.count == 0:
        return Varying(tuple(sorted(inputs)), tuple(k for k in sorted(inputs) if k < len(op.carries)))
    while True:
        found = varied(op.body, [names[k] for k in sorted(inputs)]) if inputs else set[str]()
        outputs = {k for k, (_, value) in enumerate(op.body.outputs) if value in found}
        carried = {k for k in outputs if k < len(op.carries)}
        if carried <= inputs:
            return Varying(tuple(sorted(inputs)), tuple(sorted(outputs)))
        inputs |= carried


def loop_gradients(
    graph: Graph, op: Loop, arrived: Mapping[str, str | None], found: Varying, pulled: Pulled
) -> Gradients:
    """Derivatives of what a loop takes, from those of its results (None: zero)."""
    if op.count == 0:
        ends = ((start, arrived[result]) for start, result in zip(op.carries, op.results, strict=False))
        return [(start, derivative) for start, derivative in ends if derivative is not None]
    return _Backward(graph, op, arrived, found, pulled).run()


@dataclass(slots=True)
class _Backward:
    graph: Graph
    op: Loop
    arrived: Mapping[str, str | None]
    found: Varying
    pulled: Pulled
    _taken: set[str] = field(default_factory=set[str])
    """Names in the body of the loop backwards."""

    def run(self) -> Gradients:
        op, found, carried = self.op, self.found, len(self.op.carries)
        rows = [k for k in found.inputs if carried <= k < carried + len(op.slices)]
        totals = [k for k in found.inputs if k not in rows]
        stacked = [k for k in found.outputs if k >= carried]
        body, read = self._body(self._round(), totals, rows, stacked)
        starts = tuple(self._start(k) for k in totals)
        saved = self._saved([k for k in read if k < carried])
        cut = [self._outside[k] for k in read if carried <= k < carried + len(op.slices)]
        slices = (*saved, *cut, *(self._arrived(k) for k in stacked))
        captured = tuple(self._outside[k] for k in read if k >= carried + len(op.slices))
        types = [op.body.inputs[k].type for k in totals] + [self.graph.types[self._outside[k]] for k in rows]
        results = tuple(map(self._named, types))
        self.graph.link(Loop(results, tuple(types), body, op.count, starts, slices, captured, not op.reverse))
        return list(zip((self._outside[k] for k in (*totals, *rows)), results, strict=True))

    def _named(self, type_: TensorType) -> str:
        name = self.graph.fresh("G")
        self.graph.types[name] = type_
        return name

    @property
    def _outside(self) -> tuple[str, ...]:
        return (*self.op.carries, *self.op.slices, *self.op.captured)

    def _arrived(self, k: int) -> str:
        name = self.op.results[k]
        return self.arrived[name] or self.graph.zeros(self.op.types[k])

    def _start(self, k: int) -> str:
        """What the derivative of input k of the body is before the last round's share."""
        if k < len(self.op.carries) and k in self.found.outputs:
            return self._arrived(k)
        return self.graph.zeros(self.op.body.inputs[k].type)

    def _round(self) -> Program:
        """The product of one round; its cotangents are those of the outputs that vary, in order."""
        body = self.op.body
        inputs = {p.name for p in body.inputs}
        names: list[str] = []
        for k in self.found.outputs:
            name = f"Y{k}"
            while f"d_{name}" in inputs:
                name += "_"
            names.append(name)
        outputs = tuple((n, body.outputs[k][1]) for n, k in zip(names, self.found.outputs, strict=True))
        return self.pulled(replace(body, outputs=outputs), [body.inputs[k].name for k in self.found.inputs])

    def _saved(self, carries: Sequence[int]) -> tuple[str, ...]:
        """Stacks of what each round began with; the loop, which is already in the graph, makes them from now on."""
        op, graph = self.op, self.graph
        place = next(n for n, other in enumerate(graph.ops) if isinstance(other, Loop) and other.results == op.results)
        params = [op.body.inputs[k] for k in carries]
        types = tuple(TensorType(p.type.dtype, (op.count, *p.type.shape)) for p in params)
        names = tuple(map(self._named, types))
        taken = {public for public, _ in op.body.outputs}
        more = tuple((claim(f"{p.name}_saved", taken), p.name) for p in params)
        body = replace(op.body, outputs=(*op.body.outputs, *more))
        graph.ops[place] = replace(op, results=(*op.results, *names), types=(*op.types, *types), body=body)
        return names

    def _body(
        self, round_: Program, totals: Sequence[int], rows: Sequence[int], stacked: Sequence[int]
    ) -> tuple[Program, list[int]]:
        """A round backwards: from the derivatives of what it carried on, and sums so far, to those of what it began with.

        And which of the body's inputs it reads.
        """
        op, given = self.op, round_.inputs[: len(self.op.body.inputs)]
        cotangents = dict(zip(self.found.outputs, round_.inputs[len(given) :], strict=True))
        derivatives = dict(zip(self.found.inputs, (value for _, value in round_.outputs), strict=True))
        ops, params, taken = list(round_.ops), list[Param](), set(round_.types())
        for k in totals:
            if k < len(op.carries) and k in cotangents:
                params.append(cotangents[k])
                continue
            params.append(Param(claim("Sum", taken), given[k].type))
            if k >= len(op.carries):
                name = claim("Sum", taken)
                ops.append(Elementwise(name, given[k].type, "add", (params[-1].name, derivatives[k])))
                derivatives[k] = name
        outputs = tuple((f"T{k}", derivatives[k]) for k in (*totals, *rows))
        rules = round_.gradients
        needed = {name for o in ops for name in used_by(o)} | {value for _, value in outputs}
        needed |= {name for rule in rules for name in (*rule.inputs, *rule.outputs)}
        read = [k for k, param in enumerate(given) if param.name in needed]
        end = len(op.carries) + len(op.slices)
        cut, captured = [given[k] for k in read if k < end], [given[k] for k in read if k >= end]
        inputs = (*params, *cut, *(cotangents[k] for k in stacked), *captured)
        return Program(f"vjp_{op.body.name}", inputs, tuple(ops), outputs, rules), read
