"""The reference of the Python interface: a page for each package, with every public name where mkdocstrings finds it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc, isclass, isfunction, signature
from pathlib import Path
from types import ModuleType

from pages.markdown import fenced, table

MODULES = (
    "tile_runtime", "tile_runtime.numpy", "tile_runtime.random", "tile_nn", "tile_nn.init", "tile_onnx", "tile_torch", "tile_jax", "tile_dask",
    "tile_lang", "tile_autodiff", "tile_opt", "tile_hal", "tile_ir",
)  # fmt: skip
"""In the order in which a user meets them; what drives devices has no public names."""

DOCUMENTED = """\
::: {place}
    options:
      heading: {shown}
      toc_label: {shown}
      show_root_heading: true
      show_root_toc_entry: true
      heading_level: 2
"""


def available() -> list[str]:
    """Those that can be imported: front ends need frameworks that a machine may lack."""
    return [name for name in MODULES if _imported(name) is not None]


def _imported(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


def page(module: str) -> str:
    """The text of a package's page."""
    package = import_module(module)
    summary = (package.__doc__ or "").strip()
    names = public_names(package)
    parts = [f"# {module}\n", _described(summary)]
    for name in names:
        parts.append(_entry(package, name))
    return "\n".join(parts)


def _described(summary: str) -> str:
    """The docstring, with indented examples as code."""
    return re.sub(
        r"(?m)(^(?: {4}.*\n?)+)",
        lambda m: "```python\n" + re.sub(r"(?m)^ {4}", "", m[0]).rstrip() + "\n```\n",
        summary + "\n",
    )


def _entry(package: ModuleType, name: str) -> str:
    shown = f"{package.__name__}.{name}"
    try:
        value = getattr(package, name)
    except ImportError:
        # Its framework is not here; mkdocstrings reads the sources alone.
        return DOCUMENTED.format(place=shown, shown=shown)
    if isinstance(value, ModuleType):
        return f"## {shown}\n\n{_module_link(value)}"
    place = home(package, name)
    module, _, last = place.rpartition(".")
    if _is_written(module, last):
        return DOCUMENTED.format(place=place, shown=shown)
    # Made by a function from a table: there is no definition that mkdocstrings could read.
    head = f"{name}{signature(value)}" if callable(value) else f"{name} = {value!r:.70}"
    return f"## {shown}\n\n" + fenced(head, "python") + (f"\n{getdoc(value)}\n" if callable(value) else "")


def _is_written(module: str, name: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and _definition(name).search(Path(file).read_text("utf-8")) is not None


def _definition(name: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:(?:async )?def|class) {name}\b|^{name}\s*[:=]", re.MULTILINE)


def _module_link(value: ModuleType) -> str:
    known = f"{value.__name__}" in MODULES
    says = (value.__doc__ or "").strip().partition("\n\n")[0]
    return f"A module. {says}" + (f" See [{value.__name__}]({value.__name__}.md).\n" if known else "\n")


def public_names(package: ModuleType) -> list[str]:
    """What ``__all__`` lists, else what the module itself defines without an underscore."""
    listed = getattr(package, "__all__", None)
    own = (
        n
        for n, v in vars(package).items()
        if not n.startswith("_") and getattr(v, "__module__", "") == package.__name__
    )
    return sorted(own if listed is None else listed, key=str.lower)


def home(package: ModuleType, name: str) -> str:
    """The dotted path under which a name is defined."""
    value = getattr(package, name)
    if isclass(value) or isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return next(_defining(package, name, value), f"{package.__name__}.{name}")


def _defining(package: ModuleType, name: str, value: object) -> Iterator[str]:
    """Modules of ours that assign the name; types of instances are no help for constants."""
    for module in [m for m in sys.modules.values() if m.__name__.startswith(("tile_", "hal_"))]:
        if vars(module).get(name) is value and _is_written(module.__name__, name):
            yield f"{module.__name__}.{name}"


def index(modules: list[str]) -> str:
    rows = [(f"[{m}]({m}.md)", " ".join((import_module(m).__doc__ or "").split("\n\n")[0].split())) for m in modules]
    text = "# Python interface\n\nEvery public name, by package. What is not listed may change at any time.\n\n"
    return text + table(("import", ""), rows)
