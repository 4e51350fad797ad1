"""The backend of `torch.compile`: what Dynamo captures goes through AOTAutograd, and its graphs to a Tile device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_runtime.evaluator import Evaluator
from torch._C import _get_mkldnn_enabled, _set_mkldnn_enabled  # pyright: ignore[reportPrivateUsage]
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch._higher_order_ops.flex_attention import flex_attention
from torch._higher_order_ops.flex_attention import math_attention as attention  # pyright: ignore[reportUnknownVariableType]
from torch.fx import Graph, GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy

from tile_torch import support, traces
from tile_torch.decompositions import decompositions
from tile_torch.executable import Executable
from tile_torch.registry import find
from tile_torch.resizing import separate
from tile_torch.sharing import share
from tile_torch.traces.graphs import inputs as inputs_of
from tile_torch.traces.keys import known
from tile_torch.traces.replay import Replayed

if TYPE_CHECKING:
    from tile_torch.traces.store import Place, Trace

math_attention = cast("Callable[..., Any]", attention)

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
"""As one operator, of which Tile derives a kernel and gradients that keep no matrix of weights; else by its definition."""

EXACT = "highest"
"""Of `torch.get_float32_matmul_precision`: float32 is not rounded for products."""


@dataclass(frozen=True, slots=True)
class Options:
    """What ``torch.compile(model, backend="tile", options={…})`` takes."""

    device: Device | Evaluator | str | None = None
    """A Tile device; an Evaluator brings options of its own. None: $TILE_DEVICE, or the best."""
    fallback: str = "error"
    """What happens to operators that Tile lacks: ``"error"`` lists them, with ``"eager"`` PyTorch runs them."""
    reduced_precision: bool | None = None
    """Lets the device round factors of float32 for its matrix instructions, as to TF32. None: what
    `torch.set_float32_matmul_precision` says. Products of bfloat16 and float16 use them, as PyTorch's own do."""

    @property
    def eager(self) -> bool:
        """Whether PyTorch runs what Tile cannot."""
        return self.fallback == "eager"

    def evaluator(self) -> Evaluator:
        """What compiles and runs programs with these options."""
        if isinstance(self.device, Evaluator):
            return self.device
        asked = self.reduced_precision
        reduced = torch.get_float32_matmul_precision() != EXACT if asked is None else asked
        return Evaluator(self.device, reduced_precision=reduced, short_products=True, fold_scales=True)


def tile(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Compiles a captured graph: ``torch.compile(model, backend="tile")``.

    TileTypeError for options that do not exist, and for operators that cannot run, all of them at once, before
    anything is compiled.
    """
    chosen = checked(options or {}, mode)
    place = None if chosen.eager else place_of(module, inputs)
    kept = place.read() if place is not None else None
    if place is not None and kept is not None:
        return again(place, kept, chosen.evaluator(), inputs)
    made = _Traced(chosen, chosen.evaluator())
    dense(module)
    separate(module)
    with sdpa_kernel(ATTENTION), _steps():
        compiled = made.compiled(module, inputs)
    if place is not None:
        made.keep(place)
    return compiled


@contextmanager
def _steps() -> Generator[None]:
    """Where recurrent layers may have gradients, PyTorch takes them step by step: those of its operator for a whole layer are its own."""
    before = _get_mkldnn_enabled()
    _set_mkldnn_enabled(before and not torch.is_grad_enabled())
    try:
        yield
    finally:
        _set_mkldnn_enabled(before)


def place_of(module: GraphModule, inputs: Sequence[Any]) -> Place | None:
    """Where the trace of a captured graph is kept; None where it cannot be, with this PyTorch or at all."""
    if traces.unkept() is not None:
        return None
    from tile_torch.traces.store import Place

    return Place.of(module, inputs, [])


class _Traced:
    """One captured graph on its way through AOTAutograd, and the graphs that came of it."""

    def __init__(self, options: Options, evaluator: Evaluator) -> None:
        self.options = options
        self.evaluator = evaluator
        self.graphs: list[GraphModule] = []
        self.notes: Any = None

    def compiled(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The captured graph as a function."""
        compiler: Any = aot_autograd(
            fw_compiler=self._graph,
            bw_compiler=self._graph,
            inference_compiler=self._inferring,
            decompositions=decompositions(),
            partition_fn=self._divided,
        )
        return compiler(module, inputs)

    def keep(self, place: Place) -> None:
        """Keeps what came of it, but for what PyTorch takes apart again, which is several graphs."""
        if self.notes is not None and len(self.graphs) in (1, 2):
            forward, *backward = self.graphs
            place.write(forward, backward[0] if backward else None, self.notes)

    def _graph(self, graph: GraphModule, arguments: Sequence[Any]) -> Callable[..., Any]:
        self._note()
        return self._executable(graph, arguments, frozenset())

    def _inferring(self, graph: GraphModule, arguments: Sequence[Any]) -> Callable[..., Any]:
        self._note()
        self.graphs.append(graph)
        names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
        return self._executable(graph, arguments, static_inputs(names, arguments))

    def _executable(self, graph: GraphModule, arguments: Sequence[Any], static: frozenset[str]) -> Callable[..., Any]:
        text = None if self.options.eager else known(graph, static)
        executable = Executable(graph, self.evaluator, static, eager=self.options.eager, text=text)
        executable.prepare(arguments)  # what cannot run is known before anything is compiled
        return boxed(executable)

    def _note(self) -> None:
        context = TracingContext.try_get()
        if context is not None:
            self.notes = context.fw_metadata
            # Programs write to no argument: what the backward pass is given may be kept for another one.
            self.notes.bw_donated_idxs = []

    def _divided(self, joint: GraphModule, *given: Any, **how: Any) -> tuple[GraphModule, GraphModule]:
        joint.graph.eliminate_dead_code()
        share(joint.graph)
        keep_draws(joint.graph)
        with functorch.patch(cse=False):  # pyright: ignore[reportUnknownMemberType]
            parts = min_cut_rematerialization_partition(joint, *given, **how)
        self.graphs += parts
        if not self.options.eager:
            check(parts)
        return parts


def again(place: Place, kept: Trace, evaluator: Evaluator, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A captured graph whose trace was kept: its programs are made when they are called."""

    def compile(graph: str) -> Callable[[list[Any]], Any]:
        static = static_inputs(inputs_of(graph), inputs) if kept.backward is None else frozenset[str]()
        return boxed(Replayed(graph, evaluator, static))

    return place.function(kept, compile)


def dense(module: GraphModule) -> None:
    """Attention whose scores a function changes, by its definition; blocks that its mask leaves out are computed, too."""
    for node in module.graph.find_nodes(op="call_function", target=flex_attention):
        node.target = math_attention
    module.recompile()


def keep_draws(graph: Graph) -> None:
    """Random numbers are saved for the backward pass, even where what is computed with them is computed again.

    Of an operator that gives several values (attention, which could drop some of its weights) each value is saved.
    """
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            several = isinstance(node.meta.get("val"), (tuple, list))
            node.meta.pop("recompute", None)
            for kept in node.users if several else (node,):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def check(graphs: Sequence[GraphModule]) -> None:
    """TileTypeError with what cannot run in any of the graphs of a training step, before the first of them is compiled."""
    targets = [node.target for graph in graphs for node in graph.graph.nodes]
    if all(find(target) is not None for target in targets if hasattr(target, "_schema")):
        return
    walks = [Executable.walked(graph) for graph in graphs]
    problems = [p for walk in walks for p in walk.problems.values()]
    if problems:
        raise support.unsupported(problems)


def boxed(executable: Callable[[Sequence[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """The graph as AOTAutograd calls it: with a list that is emptied, so that memory is free as soon as it can be."""

    def run(arguments: list[Any]) -> list[Any]:
        given = list(arguments)
        arguments.clear()
        return executable(given)

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return run


def static_inputs(names: Sequence[str], arguments: Sequence[Any]) -> frozenset[str]:
    """Names of parameters and buffers that the graph at hand does not change, and whose changes can be seen."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return frozenset()
    found = context.fw_metadata
    changed = {k for k, known in enumerate(found.input_info) if known.mutates_data or known.mutates_metadata}
    seen = (k for k in found.static_input_indices if k not in changed and not arguments[k].is_inference())
    return frozenset(names[k] for k in seen)


def checked(options: Mapping[str, Any], mode: str | None) -> Options:
    """Options as given; TileTypeError for what there is not."""
    names = tuple(Options.__dataclass_fields__)
    wrong = [f"option {name!r}" for name in options if name not in names]
    if mode is not None:
        wrong.append(f"mode {mode!r}")
    if wrong:
        message = f"the tile backend has no {', no '.join(wrong)}"
        raise TileTypeError(Diagnostic("TILE-E921", message, hint=f"options are {', '.join(names)}"))
    found = Options(**options)
    if found.fallback not in ("error", "eager"):
        message = f"option 'fallback' is {found.fallback!r}"
        raise TileTypeError(Diagnostic("TILE-E921", message, hint="it is 'error' or 'eager'"))
    return found
