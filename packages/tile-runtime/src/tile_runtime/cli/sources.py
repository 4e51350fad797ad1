"""Functions that commands are given: Tile text in a file or on standard input, or what a Python module has by some name."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from tile_ir.diagnostics import TileError, is_ours
from tile_ir.text_files import read_standard_input

from tile_runtime.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from tile_ir.program.nodes import TensorType

    from tile_runtime.function import BaseFunction, Function

_NAMED = re.compile(r"(?P<where>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")


class PythonFunction:
    """A Python function of arrays: a Tile function once the types of its arguments are known."""

    def __init__(self, function: Any) -> None:
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise CommandError(f"{_called(function)} takes any number of arguments; name a function of some")
        self.function = function
        self.name = str(getattr(function, "__name__", "function"))
        self.arguments = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)

    def typed(self, types: Mapping[str, TensorType]) -> BaseFunction:
        """What it makes of placeholders of these types."""
        from tile_runtime.tracing import place, traced

        def call(symbols: Sequence[Any]) -> Any:
            return _guarded(self.name, lambda: self.function(*symbols))

        return traced(self.name, call, [place(n, types[n]) for n in self.arguments])


def read_any(path: Path) -> BaseFunction | PythonFunction:
    """The function that a command names: ``FILE``, ``-``, ``module:name`` or ``file.py:name``."""
    found = _NAMED.fullmatch(str(path))
    if found is None or path.exists():
        return read_function(path)
    return _as_function(_named(found["where"], found["name"]), str(path))


def read_function(path: Path) -> Function:
    """The function in a file, or from standard input."""
    from tile_runtime.function import Function

    if str(path) != "-":
        return Function.from_file(path)
    return Function(standard_input(), "<stdin>")


def standard_input() -> str:
    """Standard input as text."""
    try:
        return read_standard_input()
    except UnicodeDecodeError as problem:
        raise CommandError(f"standard input is not UTF-8 text: {problem}", USAGE) from None


def stated_types(function: BaseFunction | PythonFunction) -> dict[str, TensorType]:
    """The types of arguments that a function has already: by the comment in its text, or because it is composed for them."""
    from tile_runtime.function import Function

    program = getattr(function, "program", None)
    if isinstance(function, Function):
        from tile_ir.diagnostics import Source
        from tile_lang.stated import stated_types as stated

        return {n: t for n, t in stated(Source(function.source)).types.items() if n in function.inputs}
    return {} if program is None else {p.name: p.type for p in program.inputs if p.name in function.arguments}


def typed(function: BaseFunction | PythonFunction, types: Mapping[str, TensorType]) -> BaseFunction:
    """The Tile function for arguments of these types."""
    return function.typed(types) if isinstance(function, PythonFunction) else function


# --- Python --------------------------------------------------------------------------------------


def _named(where: str, name: str) -> Any:
    """What a module, or a file of Python, calls `name`."""
    module = _module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = get_close_matches(part, [n for n in dir(found) if not n.startswith("_")], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CommandError(f"{where} has no {name}{hint}", USAGE)
        found = getattr(found, part)
    return found


def _module(where: str) -> ModuleType:
    file = Path(where)
    is_file = where.endswith(".py")
    if is_file and not file.is_file():
        raise CommandError(f"no such file: {where}", USAGE)
    folder, name = (file.parent, file.stem) if is_file else (Path(), where)
    sys.path.insert(0, str(folder.resolve()))
    try:
        return import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(f"{problem.name}.")):
            raise CommandError(f"there is no module {problem.name}, here or where Python looks", USAGE) from None
        raise CommandError(f"{where} cannot be imported: {problem}") from None
    except Exception as problem:  # it is somebody else's code
        raise CommandError(f"{where} cannot be imported: {type(problem).__name__}: {problem}") from problem
    finally:
        sys.path.pop(0)


def _as_function(found: Any, what: str) -> BaseFunction | PythonFunction:
    from tile_runtime.function import BaseFunction
    from tile_runtime.jit import Jitted

    if isinstance(found, BaseFunction):
        return found
    if isinstance(found, Jitted):
        return PythonFunction(found.function)
    if not callable(found) or isinstance(found, type):
        raise CommandError(f"{what} is a {type(cast(object, found)).__name__}, not a function", USAGE)
    made = PythonFunction(found)
    if made.arguments:
        return made
    return _made(found, what)


def _guarded(name: str, work: Callable[[], Any]) -> Any:
    """What somebody else's code gives; a mistake in it is a sentence with its place."""
    try:
        return work()
    except TileError:
        raise
    except Exception as problem:
        said = f"{type(problem).__name__}: {problem}"
        raise CommandError(f"{name} failed at {_place(problem)}: {said}") from problem


def _place(problem: Exception) -> str:
    """Where a mistake was made: the last line that is not ours."""
    frames = [(f"{frame.f_code.co_filename}:{line}", is_ours(frame)) for frame, line in walk_tb(problem.__traceback__)]
    return next((place for place, ours in reversed(frames) if not ours), frames[-1][0])


def _made(make: Any, what: str) -> BaseFunction | PythonFunction:
    """What a Python function without arguments returns: a function that it composes."""
    result = _guarded(what, make)
    from tile_runtime.function import BaseFunction

    if not isinstance(result, BaseFunction):
        kind = type(cast(object, result)).__name__
        raise CommandError(f"{what} has no arguments and returns a {kind}, not a Tile function", USAGE)
    return result


def _called(function: Any) -> str:
    return str(getattr(function, "__qualname__", function))
