"""Composing functions into one program, so that kernels fuse across them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, cast

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import from_numpy
from tile_ir.names import claim

from tile_runtime.arguments import input_type
from tile_runtime.arrays import contents, kept
from tile_runtime.checks import described, wrong_kind
from tile_runtime.function import BaseFunction
from tile_runtime.names import checked_name
from tile_runtime.symbols import Application, Symbol, composition_error
from tile_runtime.tensor import Tensor

if TYPE_CHECKING:
    from tile_ir.program.nodes import ConstantTensor, CustomGradient, Op, Program, TensorType


Outputs = Sequence[Symbol] | Mapping[str, Symbol]


def compose(inputs: Sequence[Symbol], outputs: Outputs, updates: Sequence[tuple[Tensor, Symbol]] = ()) -> Composition:
    """One function from placeholders to symbols.

    `outputs` is a list of symbols, which are called as the functions that make them call them, or a mapping from
    names (any text) to symbols; calls return them in this order. Any symbol may be an output: a placeholder, a
    constant, one that is an output already.

    Tensors used on the way are bound: each call reads their current contents. `updates` is pairs of a
    bound Tensor and the symbol it holds after each call. Arrays used on the way become constants: they are copied now,
    unless they are read-only and nothing writable shares their memory.
    TileTypeError when an output depends on a placeholder that is not in `inputs`.
    """
    return Composition(inputs, outputs, updates)


class Composition(BaseFunction):
    """The function `compose` makes."""

    def __init__(self, inputs: Sequence[Symbol], outputs: Outputs, updates: Sequence[tuple[Tensor, Symbol]]) -> None:
        _check_arguments(inputs, outputs, updates)
        linker = Linker(inputs)
        wanted = _symbols(outputs)
        values = [linker.value(s) for s in (*wanted, *(s for _, s in updates))]
        taken = linker.inputs()
        public = list(outputs) if isinstance(outputs, Mapping) else [claim(s.name, taken) for s in wanted]
        taken.update(public)
        public += [claim("Updated", taken) for _ in updates]
        self.name = "composition"
        self.key = object()
        self.program = linker.program(tuple(zip(public, values, strict=True)))
        self.bound = dict(linker.tensors)
        self.inputs = tuple(p.name for p in self.program.inputs)
        self.outputs = tuple(public)
        self.updates = self._updates(linker, updates, public[len(wanted) :])

    def _updates(
        self, linker: Linker, updates: Sequence[tuple[Tensor, Symbol]], names: Sequence[str]
    ) -> tuple[tuple[str, str], ...]:
        pairs: list[tuple[str, str]] = []
        for (tensor, symbol), out in zip(updates, names, strict=True):
            name = next((n for n, t in linker.tensors.items() if t is tensor), None)
            if name is None:
                raise composition_error(f"the tensor updated with {symbol.name!r} is not used by the composition")
            if (tensor.shape, tensor.dtype) != (symbol.shape, symbol.dtype):
                raise composition_error(f"{symbol!r} cannot update a tensor of {tensor.dtype}{list(tensor.shape)}")
            pairs.append((name, out))
        return tuple(pairs)

    def binding(self, tensors: Mapping[str, Tensor]) -> Composition:
        """The same function with some inputs filled in: each call reads the current contents of these Tensors.

        What follows from them alone is computed once, and again after they were written to. TileTypeError for names that
        are no inputs, and Tensors that do not fit.
        """
        types = {p.name: p.type for p in self.program.inputs}
        for name, tensor in tensors.items():
            if types.get(name) != input_type(name, tensor):
                hint = f"inputs are {', '.join(self.inputs)}"
                raise composition_error(f"no input {name!r} takes {tensor!r}", hint)
        filled = copy(self)
        filled.bound, filled.key = {**self.bound, **tensors}, object()
        return filled

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        for param in self.program.inputs:
            if types[param.name] != param.type:
                raise TileTypeError(
                    Diagnostic("TILE-E510", f"input {param.name!r} is {types[param.name]}, composed for {param.type}")
                )
        return self.program


def _check_arguments(inputs: Any, outputs: Any, updates: Any) -> None:
    """TileTypeError for anything that is not what `compose` takes."""
    for what, given in (("inputs", inputs), ("outputs", outputs), ("updates", updates)):
        if not isinstance(given, Collection):
            raise wrong_kind(
                f"the {what} of a composition are a list", given, f"put a single one in brackets: {what}=[…]"
            )
    if not outputs and not updates:
        raise composition_error("a composition needs an output or an update")
    _check_inputs(inputs)
    for pair in updates:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Tensor)):  # pyright: ignore[reportUnknownArgumentType]
            raise composition_error(f"an update is a pair (Tensor, Symbol), not {described(cast(object, pair))}")
    for name in cast("Mapping[object, Any]", outputs) if isinstance(outputs, Mapping) else ():
        checked_name("an output", name)
    for symbol in (*_symbols(cast("Outputs", outputs)), *(s for _, s in updates)):
        if not isinstance(symbol, Symbol):
            hint = "a call on arrays alone computes at once; tile.constant(array) makes a Symbol of one"
            raise composition_error(f"an output or update of {type(symbol).__name__} is no Symbol", hint)


def _check_inputs(inputs: Collection[Any]) -> None:
    seen: set[int] = set()
    for symbol in inputs:
        if not isinstance(symbol, Symbol) or not symbol.is_placeholder:
            raise composition_error(
                f"input {described(symbol)} is not a placeholder",
                "make one with tile.placeholder(dtype, shape, name=…)",
            )
        if id(symbol) in seen:
            raise composition_error(f"placeholder {symbol.name!r} is listed twice among the inputs")
        seen.add(id(symbol))


def _symbols(outputs: Outputs) -> tuple[Symbol, ...]:
    return tuple(outputs.values() if isinstance(outputs, Mapping) else outputs)


def _nothing(_: Any) -> bool:
    return False


class Linker:
    """Copies the programs of applications into one, under fresh names."""

    def __init__(self, inputs: Sequence[Symbol], outside: Callable[[Any], bool] = _nothing) -> None:
        """What is `outside` becomes one more input, whatever it is made of: see `captured`."""
        from tile_ir.program.nodes import Param, TensorType

        self._outside = outside
        self.captured: dict[str, Any] = {}
        """What is outside, by the name of its input, in the order of the inputs."""
        self._taken: set[str] = set()
        self._values: dict[int, str] = {}
        self._kept: list[Any] = []
        self.tensors: dict[str, Tensor] = {}
        self._params: list[Param] = []
        self._ops: list[Op | ConstantTensor] = []
        self._gradients: list[CustomGradient] = []
        self._applied: dict[int, dict[str, str]] = {}
        for symbol in inputs:
            name = claim(symbol.name, self._taken)
            self._params.append(Param(name, TensorType(symbol.dtype, symbol.shape)))
            self._values[id(symbol)] = name

    def inputs(self) -> set[str]:
        """Names of the placeholders and tensors."""
        return {p.name for p in self._params}

    def program(self, outputs: tuple[tuple[str, str], ...]) -> Program:
        from tile_ir.program.nodes import Program

        ops, gradients = tuple(self._ops), tuple(self._gradients)
        return Program("composition", tuple(self._params), ops, outputs, gradients)  # pyright: ignore[reportArgumentType]

    def value(self, root: Any) -> str:
        """The name that holds a symbol, tensor or array; links what it needs first, without recursion."""
        stack = [root]
        while stack:
            item = stack[-1]
            waiting = [] if self._known(item) else self._missing(item)
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if not self._known(item):
                self._define(item)
        return self._values[id(root)]

    def _known(self, item: Any) -> bool:
        return id(item) in self._values

    def _missing(self, item: Any) -> list[Any]:
        if not isinstance(item, Symbol) or item.source is None or self._outside(item):
            return []
        return [v for v in item.source[0].arguments.values() if not self._known(v)]

    def _define(self, item: Any) -> None:
        self._kept.append(item)
        if self._outside(item):
            name = self._capture(item)
        elif isinstance(item, Symbol):
            name = self._output(item) if item.known is None else self._constant(item.known, item.name)
        elif isinstance(item, Tensor):
            name = self._tensor(item)
        else:
            name = self._constant(item)
        self._values[id(item)] = name

    def _output(self, symbol: Symbol) -> str:
        if symbol.source is None:
            raise composition_error(f"placeholder {symbol.name!r} is used but is not among the inputs")
        application, public = symbol.source
        if id(application) not in self._applied:
            self._applied[id(application)] = self._link(application)
        return self._applied[id(application)][public]

    def _link(self, application: Application) -> dict[str, str]:
        from tile_ir.program.provenance import with_label
        from tile_ir.program.rename import renamed, renamed_gradient

        program = application.program
        names = {p.name: self._values[id(application.arguments[p.name])] for p in program.inputs}
        for name in program.types():
            if name not in names:
                names[name] = claim(name, self._taken)
        ops = (renamed(op, names) for op in program.ops)
        self._ops += [with_label(op, application.label) for op in ops] if application.label else ops
        self._gradients += [renamed_gradient(g, names) for g in program.gradients]
        return {public: names[value] for public, value in program.outputs}

    def _tensor(self, tensor: Tensor) -> str:
        name = self._input("W", tensor)
        self.tensors[name] = tensor
        return name

    def _capture(self, value: Any) -> str:
        name = self._input(value.name if isinstance(value, Symbol) else "W", value)
        self.captured[name] = value
        return name

    def _input(self, wanted: str, value: Any) -> str:
        from tile_ir.program.nodes import Param

        name = claim(wanted, self._taken)
        self._params.append(Param(name, input_type(name, value)))
        return name

    def _constant(self, value: Any, wanted: str = "Const") -> str:
        from tile_ir.program.nodes import ConstantTensor, TensorType

        array = kept("constant", value)
        name = claim(wanted, self._taken)
        type = TensorType(from_numpy(array.dtype), array.shape)
        self._ops.append(ConstantTensor(name, type, contents(array)))
        return name
