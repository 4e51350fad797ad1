"""Tile functions as Python callables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from tile_ir.diagnostics import Diagnostic, TileSyntaxError
from tile_ir.recent import Recent
from tile_ir.text_files import read_text

from tile_runtime.checks import wrong_kind
from tile_runtime.evaluator import default_evaluator
from tile_runtime.signature import Signature

if TYPE_CHECKING:
    from tile_hal.interfaces import Device
    from tile_ir.diagnostics import Span
    from tile_ir.program.nodes import Program, TensorType
    from tile_lang.ast import Function as Syntax

    from tile_runtime.lowered import Lowered


PROGRAMS = 64
"""Typed programs that a function keeps."""


class BaseFunction(Signature):
    """What is common to functions from source, gradients and compositions: they can be called and lowered."""

    def __call__(
        self,
        *args: Any,
        device: Device | str | None = None,
        out: Any = None,
        donate: str | Sequence[str] = (),
        **named: Any,
    ) -> Any:
        """Run on `device`: None is the device of the Tensors among the arguments, else the default one.

        NumPy arrays of any layout, numbers and lists give NumPy arrays; Tensors give Tensors on their device,
        which may still be pending; placeholders give Symbols. Several outputs come as a tuple.

        `out` is an array or Tensor (or a tuple of them, None where a new one is wanted) that receives the
        results, by a copy where kernels cannot write it in place. It must not overlap an input, except those
        named in `donate`, whose contents may be overwritten.

        Raises TileError naming the argument when a shape, dtype, name, device or count is wrong; nothing is
        changed then.
        """
        values = (*args, *named.values(), *self.bound.values()) if named or self.bound else args
        return default_evaluator(device, values).call(self, args, named, out, donate)

    def lower(self, *args: Any, device: Device | str | None = None, **named: Any) -> Lowered:
        """Every stage of compilation for arguments like these (arrays, Tensors or placeholders)."""
        tensors = (*args, *named.values(), *self.bound.values())
        return default_evaluator(device, tensors).lower(self, *args, **named)


class Function(BaseFunction):
    """A function written in Tile. Pickles by source; compiled code is per process, device and input types."""

    def __init__(self, source: str, name: str | None = None, *, dynamic: str | None = None) -> None:
        """Parses at once: TileSyntaxError shows every syntax error with its place, TileTypeError what is no text.

        `dynamic` names a dimension, the first one of some inputs, that may have any size without compiling again: code
        is made for eight sizes in each doubling of it, once each, and a call runs one or two of these. Each row of the
        results must come from that row of these inputs alone, else TileTypeError (TILE-E547) at the first call.
        """
        _check_text("source", source)
        if name is not None:
            _check_text("name", name)
        self.source = source
        self._file = name or "<tile>"
        self.name = Path(name).stem if name else "function"
        self.inputs = tuple(p.name.id for p in self.syntax.inputs)
        self.outputs = tuple(o.id for o in self.syntax.outputs)
        self.key = (source, self._file, dynamic)
        self._dynamic = dynamic
        if dynamic is not None:
            from tile_runtime.dynamic import inputs_with

            self.dynamic = inputs_with(dynamic, self.syntax)
        self._programs: Recent[tuple[tuple[str, TensorType], ...], Program] = Recent(PROGRAMS)
        """Typed programs by the types of the inputs: compositions apply a function many times."""

    @staticmethod
    def from_file(path: str | Path) -> Function:
        """The function in a file of UTF-8 text, called like the file; errors name the file.

        A byte-order mark at its start is no part of the text. OSError when it cannot be read, TileSyntaxError
        when it is not UTF-8 or not Tile.
        """
        try:
            text = read_text(path)
        except UnicodeDecodeError as problem:
            hint = "save it as UTF-8; Tile itself is ASCII outside comments"
            raise TileSyntaxError(Diagnostic("TILE-E513", f"{path} is not UTF-8 text: {problem}", hint=hint)) from None
        except (TypeError, ValueError):  # ValueError: a zero byte in the path
            raise wrong_kind(
                "a file is named by a string or a Path, without zero bytes", path, "such as 'conv.tile'"
            ) from None
        return Function(text, str(path))

    @property
    def written(self) -> str:
        return repr((self._file, self.source))

    @property
    def spans(self) -> Mapping[str, Span]:
        return {p.name.id: p.name.span for p in self.syntax.inputs}

    @cached_property
    def syntax(self) -> Syntax:
        """The parsed function, with spans."""
        import tile_lang
        from tile_ir.diagnostics import Source

        return tile_lang.parse(Source(self.source, self._file))

    def bind(self, types: Mapping[str, TensorType]) -> Program:
        return self._programs.get(tuple(types.items()), lambda: self._bound(types))

    def _bound(self, types: Mapping[str, TensorType]) -> Program:
        import tile_lang

        return tile_lang.bind(self.syntax, types, name=self.name)

    def __str__(self) -> str:
        return self.source

    def __reduce__(self) -> tuple[Callable[..., Function], tuple[str, str | None, str | None]]:
        return (_again, (self.source, None if self._file == "<tile>" else self._file, self._dynamic))


def _again(source: str, name: str | None, dynamic: str | None) -> Function:
    return Function(source, name, dynamic=dynamic)


def _check_text(what: str, given: object) -> None:
    if isinstance(given, str):
        return
    hint = "the source of a function is a string, such as 'function (A) -> (B) { B = A + 1; }'"
    if what == "name":
        hint = "a name is a string; errors show it, and the part before its suffix names the function"
    elif isinstance(given, PurePath):
        hint = "tile.Function.from_file reads the function in a file"
    elif isinstance(given, (bytes, bytearray)):
        hint = "decode it, as in source.decode('utf-8')"
    raise wrong_kind(f"the {what} of a function is text", given, hint)
