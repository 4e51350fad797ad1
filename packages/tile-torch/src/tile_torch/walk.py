"""Walks an FX graph of core ATen operators: every node becomes Tile, all that cannot are listed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import numpy as np
import torch
from tile_runtime.ops.moving import permuted
from tile_runtime.ops.unsupported import explained
from tile_runtime.ops.values import Value, is_known
from tile_runtime.provenance import provenance
from tile_runtime.symbols import Symbol
from torch._higher_order_ops.effects import with_effects
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node

from tile_torch import complexes, support
from tile_torch.call import Call, Type, Unsupported, dtype_of
from tile_torch.complexes import PARTS, Complex, apart, is_complex
from tile_torch.dtypes import DTYPES, to_array, to_tensor
from tile_torch.registry import find
from tile_torch.sizes import Bindings, Sized, dense_order, is_open, resolved, shape_of, strides_of

aten = torch.ops.aten

CHECKED = (aten._linalg_check_errors.default, aten._assert_async.default, aten._assert_async.msg)
"""Operators that give nothing, but raise what PyTorch raises."""
PROMISES = (
    aten._assert_scalar.default, aten._assert_tensor_metadata.default, aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
)  # fmt: skip
"""What PyTorch has been told of sizes, or asks of them between programs: no values."""
HOSTED = ("cond", "while_loop", "while_loop_stack_output", "scan", "map_impl")
"""Control flow that numbers decide: the host runs it between programs, and its bodies are programs of their own."""
LAPACK: frozenset[Any] = frozenset(
    {
        aten._linalg_eigh.default, aten._linalg_eigvals.default, aten._linalg_svd.default, aten.geqrf.default,
        aten.linalg_eig.default, aten.linalg_householder_product.default, aten.linalg_ldl_factor_ex.default,
        aten.linalg_ldl_solve.default, aten.linalg_matrix_exp.default,
        aten.linalg_pinv.atol_rtol_tensor, aten.linalg_qr.default, aten.ormqr.default,
    }
)  # fmt: skip
"""Factors of matrices whose rounds numbers decide: the host computes them between programs."""
SAMPLED: frozenset[Any] = frozenset(
    {
        aten._dirichlet_grad.default, aten._sample_dirichlet.default, aten._standard_gamma.default,
        aten._standard_gamma_grad.default, aten.binomial.default, aten.multinomial.default, aten.poisson.default,
        aten.rrelu_with_noise_functional.default,
    }
)  # fmt: skip
"""Random numbers of which tensors decide how many PyTorch draws, where they are not divided, and their derivatives."""
DECIDED = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
"""Tags of operators whose result's shape, or number of Python's, numbers decide."""
SERIES: frozenset[Any] = frozenset({aten.igamma.default, aten.igammac.default})
"""Functions that take as many terms as numbers decide."""
BETWEEN = LAPACK | SAMPLED | SERIES
"""What the host computes between programs, whatever the dtype."""
REAL: frozenset[Any] = frozenset(
    {
        aten._linalg_det.default, aten._linalg_slogdet.default, aten._linalg_solve_ex.default, aten.cholesky_solve.default,
        aten.linalg_cholesky_ex.default, aten.linalg_inv_ex.default, aten.linalg_lu_factor_ex.default,
        aten.linalg_lu_solve.default, aten.linalg_solve_triangular.default, aten.lu_unpack.default,
        aten.triangular_solve.default,
    }
)  # fmt: skip
"""Linear algebra that Tile computes of real numbers, and the host of complex ones."""
FOLDED = 2**20
"""Elements up to which what known values alone decide is computed while walking."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Of a tensor among the arguments of a call, and the order of axes in which it is contiguous."""

    number: int
    order: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """A tensor of the call."""

    slot: Slot
    symbol: Symbol


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """What PyTorch draws before each run."""

    function: Callable[[], torch.Tensor]
    symbol: Symbol


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """What PyTorch asks after each run of one of its results, and refuses: a singular matrix, for one."""

    function: Callable[[torch.Tensor], None]
    symbol: Symbol


@dataclass(slots=True)
class Walk:
    """A graph for one set of sizes: what each node is, inputs and draws in order, and the nodes that cannot run."""

    module: GraphModule
    sizes: Bindings
    values: dict[Node, Any] = field(default_factory=dict[Node, Any])
    inputs: list[Input] = field(default_factory=list[Input])
    draws: list[Draw] = field(default_factory=list[Draw])
    checks: list[Check] = field(default_factory=list[Check])
    problems: dict[Node, support.Problem] = field(default_factory=dict[Node, support.Problem])
    hosted: dict[Node, Sequence[GraphModule]] = field(default_factory=dict[Node, Sequence[GraphModule]])
    """Nodes that the host runs, with their bodies."""
    cause: Exception | None = None
    """The first exception behind the problems, for whoever mends a converter."""

    def run(self) -> Walk:
        """Visits every node."""
        places = iter(range(len(self.module.graph.nodes)))
        for node in self.module.graph.nodes:
            match node.op:
                case "placeholder":
                    self.values[node] = self._placeholder(node, next(places))
                case "get_attr":
                    self.values[node] = self._attribute(node)
                case "output":
                    pass
                case _:
                    self.values[node] = self._visited(node)
        return self

    # --- inputs and constants -------------------------------------------------------------------------

    def _placeholder(self, node: Node, place: int) -> Any:
        traced = node.meta.get("val")
        if is_open(traced, self.sizes):
            return self._stood_in(node)
        if not isinstance(traced, torch.Tensor):
            return resolved(traced, self.sizes)
        try:
            shape, dtype = self._type(traced)
        except Unsupported as reason:
            return self._refused(node, reason)
        order = dense_order(shape, strides_of(traced, self.sizes))
        laid = order or tuple(range(len(shape)))
        parts = (2,) if is_complex(traced) else ()
        symbol = Symbol((*(shape[k] for k in laid), *parts), dtype, input_name(node, len(self.inputs) + 1))
        self.inputs.append(Input(Slot(place, order), symbol))
        back = [laid.index(k) for k in range(len(shape))]
        if not parts:
            return permuted(symbol, back)
        found = apart(symbol)
        return Complex(permuted(found.real, back), permuted(found.imag, back))

    def _attribute(self, node: Node) -> Any:
        found: Any = self.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if isinstance(found, GraphModule):
            return found
        if not isinstance(found, torch.Tensor):
            return self._refused(node, Unsupported(f"it is a {type(found).__name__}, no tensor"))
        return _known(found)

    # --- operators ------------------------------------------------------------------------------------

    def _visited(self, node: Node) -> Any:
        traced = node.meta.get("val")
        if node.target in PROMISES:
            return None
        if _is_hosted(node):
            self.hosted[node] = [a for a in self._given(node.args) if isinstance(a, GraphModule)]
            return self._stood_in(node)
        if self._is_later(node):
            return self._later(node)
        if isinstance(traced, Sized | int | float | bool):
            return resolved(traced, self.sizes)
        arguments = self._given(node.args)
        if node.target is operator.getitem:
            return arguments[0][arguments[1]]
        if node.target in CHECKED:
            return self._checked(node.target, *arguments, **node.kwargs)
        if node.target is with_effects and arguments[1] in CHECKED:
            return np.zeros(0, np.float32), self._checked(*arguments[1:], **node.kwargs)
        try:
            with provenance(support.label(node)):
                return self._converted(node, arguments, {k: self._given(v) for k, v in node.kwargs.items()})
        except Exception as reason:  # what does not fit a converter may break it in any way
            return self._refused(node, reason)

    def _is_later(self, node: Node) -> bool:
        """Whether sizes of a node, or of an operand, are only known when the graph runs."""
        values = (v for n in (node, *node.all_input_nodes) for v in _several(n.meta.get("val")))
        return any(is_open(v, self.sizes) for v in values)

    def _later(self, node: Node) -> Any:
        """What is walked again when its sizes are known; whether Tile has the operator is known before."""
        target: Any = node.target
        computed = isinstance(target, OpOverload) and not isinstance(node.meta.get("val"), Sized)
        if computed and not _is_complex(node) and find(cast(Any, target)) is None:
            return self._refused(node, Unsupported("Tile has no converter for it"))
        return self._stood_in(node)

    def _given(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._given(a) for a in cast("Sequence[Any]", argument)]
        return resolved(argument, self.sizes)

    def _converted(self, node: Node, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        target: Any = node.target
        if not isinstance(node.target, OpOverload):
            raise Unsupported("it is no operator of ATen")
        types = tuple(self._types(node.meta.get("val")))
        self._check_operands(node)
        folded = self._folded(target, types, arguments, named)
        if folded is not None:
            return folded
        if all(t is not None and not prod(t[0]) for t in types):
            return _nothing(node, types)
        strides, offsets = self._memory(node)
        call = Call(target, types, _used(node), strides, offsets, self._drawn, self._noted)
        made: Any = self._made(node, call, arguments, named)
        for value, expected in zip(_several(made), types, strict=False):
            _check_type(value, expected)
        return made

    def _made(self, node: Node, call: Call, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """What a converter gives: another one where numbers are complex."""
        if _is_complex(node):
            return complexes.converted(call, arguments, named)
        converter = find(call.target)
        if converter is None:
            raise Unsupported("Tile has no converter for it")
        return converter(call, *arguments, **named)

    def _folded(self, target: Any, types: Sequence[Type | None], given: Sequence[Any], named: Any) -> Any:
        """What PyTorch makes of values that are all known; None where some are not, or it is random, or large."""
        drawn = torch.Tag.nondeterministic_seeded in target.tags
        if drawn or any(isinstance(v, Symbol) for v in _leaves([given, named])):
            return None
        if any(t is not None and prod(t[0]) > FOLDED for t in types):
            return None
        made = target(*map(_eager, given), **{name: _eager(v) for name, v in named.items() if name != "device"})
        return tuple(map(_known, _several(made))) if isinstance(made, (tuple, list)) else _known(made)

    def _types(self, traced: Any) -> Iterator[Type | None]:
        for value in _several(traced):
            yield self._type(value) if isinstance(value, torch.Tensor) else None

    def _type(self, traced: torch.Tensor) -> Type:
        dtype = DTYPES.get(traced.dtype) or PARTS.get(traced.dtype)
        if dtype is None:
            raise Unsupported(f"Tile has no {str(traced.dtype).removeprefix('torch.')}")
        if traced.layout is not torch.strided:
            raise Unsupported(f"Tile has no {traced.layout} tensors")
        return shape_of(traced, self.sizes), dtype

    def _memory(self, node: Node) -> tuple[tuple[tuple[int, ...] | None, ...], tuple[int | None, ...]]:
        """Strides and storage offset of every argument that is a tensor, as PyTorch traced them."""
        traced = [a.meta.get("val") if isinstance(a, Node) else None for a in node.args]
        tensors = [t if isinstance(t, torch.Tensor) else None for t in traced]
        strides = tuple(None if t is None else strides_of(t, self.sizes) for t in tensors)
        return strides, tuple(None if t is None else resolved(t.storage_offset(), self.sizes) for t in tensors)

    def _check_operands(self, node: Node) -> None:
        """Unsupported where an operand's dtype, or the place of the result, is none of Tile's."""
        for operand in node.all_input_nodes:
            for traced in _several(operand.meta.get("val")):
                if isinstance(traced, torch.Tensor):
                    self._type(traced)
        traced = node.meta.get("val")
        if isinstance(traced, torch.Tensor) and traced.device.type != "cpu":
            hint = "leave the model on the CPU; options={'device': …} says which Tile device computes"
            raise Unsupported(f"it is on {traced.device}", hint)

    def _checked(self, operator: Any, found: Value, *how: Any, **named: Any) -> None:
        """Notes what is checked after a run. (The token by which PyTorch orders checks is without elements.)"""
        self._noted(lambda found: operator(found, *how, **named), found)

    def _noted(self, function: Callable[[torch.Tensor], None], found: Value) -> None:
        """Has a function look at a value after each run; what is known already raises nothing."""
        if isinstance(found, Symbol):
            self.checks.append(Check(function, found))

    def _drawn(self, function: Callable[[], torch.Tensor]) -> Symbol:
        example = function_type(function)
        symbol = Symbol(*example, f"draw{len(self.draws)}")
        self.draws.append(Draw(function, symbol))
        return symbol

    def _refused(self, node: Node, reason: Exception) -> Any:
        """Notes why a node cannot run; others go on with values of its type."""
        self.problems[node] = support.problem(node, *explained(reason))
        self.cause = self.cause or reason
        return self._stood_in(node)

    def _stood_in(self, node: Node) -> Any:
        """Values of a node's types, for nodes behind one that is computed elsewhere."""
        traced = node.meta.get("val")
        stand_ins = [self._stand_in(v) for v in _several(traced)]
        return stand_ins if isinstance(traced, (tuple, list)) else stand_ins[0]

    def _stand_in(self, traced: Any) -> Any:
        is_later = is_open(traced, self.sizes)
        if not isinstance(traced, torch.Tensor):
            return traced if is_later else resolved(traced, self.sizes)
        known = {**DTYPES, **PARTS}
        shape = () if is_later else shape_of(traced, self.sizes)
        found = Symbol(shape, known.get(traced.dtype, DTYPES[torch.float32]), "unknown")
        return Complex(found, found) if is_complex(traced) else found


def input_name(node: Node, number: int) -> str:
    """``primals_3`` for the third tensor that a graph takes.

    PyTorch counts sizes that are open, too, and which are depends on what a process called before: with PyTorch's names the
    same program would be another one in the disk cache.
    """
    return f"{node.name.rstrip('_0123456789') or 'input'}_{number}"


def function_type(function: Callable[[], torch.Tensor]) -> Type:
    """What a drawing function gives; PyTorch's generator is left as it was."""
    state = torch.get_rng_state()
    try:
        made = function()
    finally:
        torch.set_rng_state(state)
    return tuple(made.shape), DTYPES[made.dtype]


def _nothing(node: Node, types: Sequence[Type | None]) -> Any:
    """Results without elements."""
    made: tuple[Any, ...] = tuple(np.zeros(shape, dtype.numpy) for shape, dtype in filter(None, types))
    traced = _several(node.meta.get("val"))
    made = tuple(Complex(v, v) if is_complex(t) else v for v, t in zip(made, traced, strict=True))
    return made if isinstance(node.meta.get("val"), (tuple, list)) else made[0]


def _several(value: Any) -> Sequence[Any]:
    """The results of an operator that may have one."""
    return cast("Sequence[Any]", value) if isinstance(value, (tuple, list)) else (value,)


def _is_hosted(node: Node) -> bool:
    """Whether the host runs a node between programs."""
    if isinstance(node.target, HigherOrderOperator):
        return node.target.name() in HOSTED
    return node.target in BETWEEN or (node.target in REAL and _is_complex(node)) or _is_shaped_by_numbers(node)


def _is_shaped_by_numbers(node: Node) -> bool:
    """Whether numbers decide the shape of a result, or give a number of Python's.

    PyTorch notes which sizes a node makes; not again where the same mask selects once more.
    """
    if node.target is aten.index.Tensor:
        chosen = cast("Sequence[Node | None]", node.args[1])
        return any(n is not None and n.meta["val"].dtype in (torch.bool, torch.uint8) for n in chosen)
    return bool(DECIDED.intersection(getattr(node.target, "tags", ())) or node.meta.get("unbacked_bindings"))


def _is_complex(node: Node) -> bool:
    """Whether an operand or a result of a node is of complex numbers."""
    traced = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    return any(is_complex(v) for t in traced for v in _several(t))


def _check_type(value: Any, expected: Type | None) -> None:
    if isinstance(value, Complex):
        _check_type(value.real, expected)
        value = value.imag
    if value is None or expected is None:
        return
    found = (tuple(value.shape), dtype_of(value))
    if found != expected:
        raise Unsupported(f"its converter gives {found[1]}{list(found[0])}, not {expected[1]}{list(expected[0])}")


def _used(node: Node) -> frozenset[int]:
    """Which results of a node something uses."""
    if not isinstance(node.meta.get("val"), (tuple, list)):
        return frozenset({0}) if node.users else frozenset()
    picked = [u for u in node.users if u.target is operator.getitem]
    if len(picked) < len(node.users):
        return frozenset(range(len(node.meta["val"])))
    return frozenset(int(cast(Any, u.args[1])) for u in picked if u.users)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in cast("Sequence[Any]", value):
            yield from _leaves(item)
    elif isinstance(value, Complex):
        yield from (value.real, value.imag)
    elif isinstance(value, dict):
        yield from _leaves(list(cast("dict[str, Any]", value).values()))
    else:
        yield value


def _known(tensor: torch.Tensor) -> Any:
    """A tensor's numbers as an array that nobody writes to."""
    array = to_array(tensor.detach().clone().contiguous())
    array.flags.writeable = False
    return apart(array) if is_complex(tensor) else array


def _eager(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_eager(v) for v in cast("Sequence[Any]", value)]
    if isinstance(value, Complex):
        return torch.complex(_eager(value.real), _eager(value.imag))
    return to_tensor(value.copy()) if is_known(value) else value
