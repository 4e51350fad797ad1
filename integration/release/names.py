"""The public names of each package, as they were when it was last released: packages/NAME/public-names.txt.

Names may come and go only with a line in the changelog: ``python -m release.names`` writes the lists anew, which only a
release does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTING = "public-names.txt"
MODULES = ("tile_runtime.numpy", "tile_runtime.random", "tile_nn.init")
"""Public modules beside the packages themselves."""


def public(package: str) -> list[str]:
    """Dotted public names of a package and of its public modules: what ``__all__`` lists, else what a module defines."""
    return sorted(name for module in _modules(package) for name in _names(module))


def _modules(package: str) -> Iterator[str]:
    top = package.replace("-", "_")
    return (name for name in (top, *MODULES) if name.partition(".")[0] == top)


def _names(name: str) -> Iterator[str]:
    # Those that need a framework can be imported without it: they load what is asked of them.
    sys.path.append(str(ROOT / "packages" / name.partition(".")[0].replace("_", "-") / "src"))
    try:
        module = import_module(name)
    finally:
        sys.path.pop()
    own = (n for n, v in vars(module).items() if n[0] != "_" and getattr(v, "__module__", "") == name)
    return (f"{name}.{item}" for item in getattr(module, "__all__", own))


def listed(package: str) -> list[str]:
    """Those of the last release."""
    return (ROOT / "packages" / package / LISTING).read_text("utf-8").splitlines()


def changed(package: str) -> tuple[set[str], set[str]]:
    """Names that came, and names that went, since."""
    now, then = {*public(package)}, {*listed(package)}
    return now - then, then - now


def unexplained(package: str) -> list[str]:
    """Changes that the newest section of the changelog does not mention: by the last part of their names, in backquotes."""
    came, went = changed(package)
    text = (ROOT / "packages" / package / "CHANGELOG.md").read_text("utf-8")
    newest = text.partition("\n## ")[2].partition("\n## ")[0]
    return sorted(name for name in came | went if f"{name.rpartition('.')[2]}`" not in newest)


def write(package: str) -> None:
    (ROOT / "packages" / package / LISTING).write_text("".join(f"{n}\n" for n in public(package)), "utf-8")


def main(arguments: list[str]) -> int:
    """Write the lists anew; with ``--check`` say which names came or went without a line in a changelog."""
    packages = [p.parent.name for p in sorted(ROOT.glob("packages/*/pyproject.toml"))]
    if arguments == ["--check"]:
        found = [name for package in packages for name in unexplained(package)]
        print("\n".join(found), end="\n" if found else "")
        return 1 if found else 0
    for package in arguments or packages:
        write(package)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
