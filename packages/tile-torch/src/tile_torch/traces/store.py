"""Traces on disk: found by what decides them, checked before they are used, traced again where they do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tile_hal.disk_cache import disk_cache
from tile_ir.settings import Settings
from torch._C import _is_any_autocast_enabled as is_any_autocast_enabled  # pyright: ignore[reportPrivateUsage]
from torch._dynamo import disable  # pyright: ignore[reportUnknownVariableType]
from torch._functorch._aot_autograd.graph_compile import (
    _compute_indices_of_inps_to_detach as detached,  # pyright: ignore[reportPrivateUsage]
)
from torch._functorch._aot_autograd.runtime_wrappers import (
    AOTDispatchAutograd,
    AOTDispatchAutogradCompileSpec,
    CachedAutogradLazyBackwardCompileInfo,
    RuntimeWrapper,
)
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
from torch._functorch.aot_autograd import prepare_aot_config
from torch._guards import TracingContext
from torch.fx import GraphModule

from tile_torch.traces import graphs, keys
from tile_torch.traces.records import BROKEN, Unkept, packed, unpacked

Runner = Callable[[list[Any]], Any]
Compiler = Callable[[str], Runner]
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def untraced(run: AnyFunction) -> AnyFunction:
    """What Dynamo does not look into: the backward pass, too, may be called from a function that it compiles."""
    return cast("Callable[..., AnyFunction]", disable)(run, reason="it runs programs of Tile")


@dataclass(frozen=True, slots=True)
class Trace:
    """What AOTAutograd makes of a captured graph: one graph, or two where something has a gradient."""

    forward: str
    backward: str | None
    """Both as texts: see `graphs`."""
    notes: ViewAndMutationMeta
    """What of inputs and outputs is changed, shared, or has a gradient: PyTorch's wrappers at run time go by it."""
    detached: tuple[int, ...]
    """Places of inputs that never get a gradient."""

    @staticmethod
    def of(forward: GraphModule, backward: GraphModule | None, notes: ViewAndMutationMeta) -> Trace:
        """Unkept for what has no form in JSON."""
        without = () if backward is None else tuple(detached(backward, None, notes, notes))
        later = None if backward is None else graphs.written(backward)
        return Trace(graphs.written(forward), later, notes, without)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the trace of one captured graph is kept."""

    key: str
    config: Any
    """PyTorch's, as its wrappers want it."""

    @staticmethod
    def of(module: GraphModule, inputs: Sequence[Any], how: Sequence[Any]) -> Place | None:
        """The place of a graph; None where it cannot be kept, or the cache is off."""
        if Settings.from_environment().cache == "off":
            return None
        try:
            config = prepare_aot_config(module, inputs, {}, False, False)[-1]
            return Place(keys.key(module, inputs, config.static_input_indices, how), config)
        except Unkept:
            return None

    def read(self) -> Trace | None:
        """The trace; None where there is none, or, with a warning, none that can be used."""
        folder = disk_cache(Settings.from_environment())
        data = folder.read(self.key)
        if data is None:
            return None
        try:
            forward, backward, notes, without = json.loads(data)
            found = unpacked(notes)
            if not isinstance(found, ViewAndMutationMeta) or not isinstance(forward, str):
                raise TypeError("it notes something else")
            return Trace(forward, backward, found, tuple(without))
        except BROKEN as problem:
            folder.discard(self.key, f"is no trace ({problem})")
            return None

    def write(self, forward: GraphModule, backward: GraphModule | None, notes: ViewAndMutationMeta) -> None:
        """Keeps a trace that has a form in JSON, where the settings allow it."""
        settings = Settings.from_environment()
        if settings.cache != "on":
            return
        try:
            trace = Trace.of(forward, backward, notes)
            text = json.dumps([trace.forward, trace.backward, packed(notes), trace.detached])
        except Unkept:
            return
        disk_cache(settings).write(self.key, text.encode())

    def function(self, trace: Trace, compile: Compiler) -> Callable[..., Any]:
        """The captured graph as a function of its inputs, with PyTorch's own wrappers around what `compile` gives."""
        context = TracingContext.try_get()
        if context is not None:
            context.fw_metadata = trace.notes
        whole = self._inferring(trace, compile) if trace.backward is None else self._training(trace, compile)

        def run(*inputs: Any) -> Any:
            return whole(list(inputs))

        return untraced(run)

    def _inferring(self, trace: Trace, compile: Compiler) -> Runner:
        wrapper = RuntimeWrapper(indices_of_inps_to_detach=[], trace_joint=False, disable_amp=is_any_autocast_enabled())
        return wrapper.post_compile(compile(trace.forward), self.config, runtime_metadata=trace.notes)

    def _training(self, trace: Trace, compile: Compiler) -> Runner:
        backward = cast(str, trace.backward)
        spec = AOTDispatchAutogradCompileSpec(
            compiled_fw_func=compile(trace.forward),
            compiled_bw_func=untraced(compile(backward)),
            maybe_subclass_meta=None,
            num_symints_saved_for_bw=0,
            backward_state_indices=[],
            disable_amp=is_any_autocast_enabled(),
            indices_of_inps_to_detach=list(trace.detached),
            lazy_backward_info=CachedAutogradLazyBackwardCompileInfo(lambda: graphs.read(backward)),
            bw_compiler=None,
            aot_config=self.config,
            fw_metadata=trace.notes,
            try_save_cache_entry=None,
        )
        return AOTDispatchAutograd.post_compile(spec)
