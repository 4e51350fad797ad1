"""Plugins that misbehave harm only themselves: each row is one, and the other devices and tools work on beside it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tile_hal
from tile_hal.discovery import Registry
from tile_hal.trials import _house
from tile_ir.diagnostics import TileDeviceError, TileSettingError

MODULE = """
import ctypes, os, sys, time
import tile_hal
from tile_hal.host import HostDevice, HostDeviceSet

if "BAD_LOG" in os.environ:
    with open(os.environ["BAD_LOG"], "a") as log:
        print("imported", file=log)
{on_import}

class Device(HostDevice):
    def __init__(self):
        like = tile_hal.device("interp")
        super().__init__("bad:0", "Bad", like.target, like.capabilities, like.compiler, like.executor)
        {on_device}

class Unnamed(tile_hal.Compiler):
    build = None
    @property
    def fingerprint(self):
        from importlib.metadata import version
        return version("bad-dist")

class Bad(tile_hal.Driver):
    name = "bad"
    api = (1, 0)
    {on_class}

    def device_sets(self):
        {on_probe}
        return [HostDeviceSet([Device()])]

    def doctor(self):
        {on_doctor}
        return ["bad is well"]

@tile_hal.hookimpl
def tile_hal_driver():
    {on_hook}
    return Bad()
"""
PARTS = ("on_import", "on_class", "on_hook", "on_probe", "on_device", "on_doctor")
CRASH, HANG = "ctypes.string_at(0)", "time.sleep(1000)"

SHORT = 6
"""Seconds for a plugin that hangs: what it does before must fit in, on a busy machine too."""
GAVE_UP = f"gave no answer for {SHORT} s"


@dataclass(frozen=True)
class Row:
    """What a plugin does, and what is said of it."""

    name: str
    says: str
    """In the one warning; "" for none."""
    status: str = "ok"
    listed: bool = False
    """Whether its device is there all the same."""
    doctor: str = ""
    """In a line of its doctor, where that is not the warning."""
    on_import: str = ""
    on_class: str = ""
    on_hook: str = ""
    on_probe: str = ""
    on_device: str = ""
    on_doctor: str = ""

    @property
    def source(self) -> str:
        return MODULE.format(**{part: getattr(self, part) or "pass" for part in PARTS})

    @property
    def hangs(self) -> bool:
        return any(HANG in getattr(self, part) for part in PARTS)


RAISING = [
    Row("import raises", "ImportError: no libbad", "broken", on_import="raise ImportError('no libbad')"),
    Row("import leaves", "SystemExit: 3", "broken", on_import="sys.exit(3)"),
    Row("hook raises", "RuntimeError: no card", "broken", on_hook="raise RuntimeError('no card')"),
    Row("hook gives nothing", "implements no hook", "broken", on_hook="return None"),
    Row("no api", "api = (1, ", "broken", on_class="del api"),
    Row("api is no pair", "pair of integers", "broken", on_class="api = 1.0"),
    Row("bad name", "lower-case identifier", "broken", on_class="name = 'Not A Name'"),
    Row("no name", "lower-case identifier", "broken", on_class="del name"),
    Row("priority is no number", "an integer or None", "broken", on_class="priority = 'high'"),
    Row("requirements are no set", "set of names", "broken", on_class="requires = 'batch'"),
    Row("later major", "upgrade tile-hal", "incompatible", on_class="api = (2, 0)"),
    Row("later minor", "upgrade tile-hal", "incompatible", on_class="api = (1, 99)"),
    Row("later minor, known features", "", listed=True, on_class="api, requires = (1, 99), frozenset({'batch'})"),
    Row("earlier major", "upgrade tile-bad", "incompatible", on_class="api = (0, 9)"),
    Row("unknown feature", "the feature telepathy of HAL API 1.99", "incompatible",
        on_class="api, requires = (1, 99), {'telepathy', 'batch'}"),
    Row("probe raises", "OSError: no ICD", on_probe="raise OSError('no ICD')"),
    Row("probe gives nothing", "TypeError: 'NoneType'", on_probe="return None"),
    Row("probe leaves", "SystemExit: 4", on_probe="sys.exit(4)"),
    Row("half a device", "no attribute 'capabilities'", on_device="del self.capabilities"),
    Row("a part of another kind", "'memory' is a int, not a Memory", on_device="self.memory = 640"),
    Row("another's id", "'interp:0' is not bad:<number>", on_device="self.id = 'interp:0'"),
    Row("fingerprint raises", "'compiler.fingerprint' raises PackageNotFoundError: No package metadata was found for bad-dist",
        on_device="Unnamed.__abstractmethods__ = frozenset(); self.compiler = Unnamed()"),
    Row("usage raises", "'memory.usage' raises ValueError: lost count",
        on_device="self.memory = type('M', (type(like.memory),), {'usage': property(Bad.lose)})()",
        on_class="""
    @staticmethod
    def lose(memory):
        raise ValueError('lost count')
"""),
    Row("doctor says one thing", "", listed=True, doctor="all is well", on_doctor="return 'all is well'"),
    Row("doctor says nothing", "", listed=True, doctor="TypeError", on_doctor="return None"),
    Row("doctor raises", "", listed=True, doctor="RuntimeError: no idea", on_doctor="raise RuntimeError('no idea')"),
    Row("nothing is wrong", "", listed=True, doctor="bad is well"),
]  # fmt: skip
"""What Python reports by an exception."""
FATAL = [
    Row("import ends the process", "ended with exit code 3", "broken", on_import="os._exit(3)"),
    Row("import ends well", "ended without an answer", "broken", on_import="os._exit(0)"),
    Row("import crashes", "died of SIGSEGV", "broken", on_import=CRASH),
    Row("import hangs", GAVE_UP, "broken", on_import=HANG),
    Row("hook hangs", GAVE_UP, "broken", on_hook=HANG),
    Row("import prints", "'hello from the vendor'", listed=True, on_import="print('hello from the vendor')"),
    Row("probe aborts", "died of SIGABRT", on_probe="os.abort()"),
    Row("probe hangs", GAVE_UP, on_probe=HANG),
    Row("probe prints", "'looking'", listed=True, on_probe="os.write(1, b'looking')"),
    Row("half a device", "no attribute 'capabilities'", on_device="del self.capabilities"),
    Row("doctor hangs", "", listed=True, doctor=GAVE_UP, on_doctor=HANG),
    Row("doctor crashes", "", listed=True, doctor="died of SIGSEGV", on_doctor=CRASH),
    Row("nothing is wrong", "", listed=True, doctor="bad is well"),
]
"""What takes a process along, or its time, or its output."""


@dataclass
class Point:
    """An entry point whose module is text."""

    row: Row
    name: str = "bad"
    value: str = "tile_bad.plugin"

    @property
    def dist(self) -> Any:
        return SimpleNamespace(metadata={"Name": "tile-bad", "Version": "1.0"})

    def load(self) -> object:
        module = types.ModuleType(self.value)
        exec(self.row.source, vars(module))
        return module


def own() -> list[Any]:
    from tile_hal.discovery import installed

    return [point for point in installed() if point.value.startswith("tile_hal.builtin.")]


class Thorough:
    """Trials that trust what comes with Tile, and find nothing wrong with the rest."""

    try_again = False

    def trusts(self, report: Any) -> bool:
        return report.distribution == "tile-hal"

    def verdict(self, report: Any, stage: Any) -> Any:
        from tile_hal.trials import Verdict

        return Verdict()

    def owner(self, driver: str, claims: list[Any]) -> Any:
        return claims[0]


@pytest.mark.parametrize("row", RAISING, ids=lambda row: row.name.replace(" ", "-"))
def test_what_a_plugin_raises_is_one_warning(row: Row) -> None:
    registry = Registry(lambda: [*own(), Point(row)], Thorough())  # type: ignore[arg-type]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ids = [d.id for d in registry.devices()]
    assert ids == ["bad:0"] * row.listed + ["interp:0", "null:0"]
    said = [str(w.message) for w in caught]
    assert len(said) == bool(row.says) and all("tile-bad" in text and row.says in text for text in said), said
    (report,) = [p for p in registry.plugins() if p.entry_point == "bad"]
    assert report.status.value == row.status
    (lines,) = [d.lines for d in registry.doctor() if d.plugin is report]
    assert row.doctor or row.says in "\n".join(lines)
    if not row.listed:
        with pytest.raises(TileDeviceError, match="there is no device 'bad'") as error:
            registry.device("bad")
        assert row.says in str(error.value)


def test_the_default_device_is_another_where_the_best_is_broken() -> None:
    row = Row("best", "", on_class="priority = 99", on_probe="raise OSError('no ICD')")
    registry = Registry(lambda: [*own(), Point(row)])
    with pytest.warns(tile_hal.TilePluginWarning, match="no ICD"):
        assert registry.default_device(tile_hal.discovery.Settings()).id == "interp:0"


# --- in processes ---

LOOK = """
import json, sys, warnings
said = []
warnings.showwarning = lambda message, *_, **__: said.append(str(message))
import tile_hal
found = {"devices": [d.id for d in tile_hal.devices()]}
found["status"] = {p.distribution: p.status.value for p in tile_hal.plugins()}
if "doctor" in sys.argv:
    found["doctor"] = {d.plugin.distribution: d.lines for d in tile_hal.doctor()}
print(json.dumps({**found, "said": said}))
"""


class Site:
    """An environment with more plugins, and a cache of its own."""

    def __init__(self, folder: Path, **plugins: Row) -> None:
        self.folder = folder
        self.seconds = str(SHORT) if any(row.hangs for row in plugins.values()) else "120"
        for module, row in plugins.items():
            self.install(module, row)

    def install(self, module: str, row: Row) -> None:
        facts = self.folder / "site" / f"{module}-1.0.dist-info"
        facts.mkdir(parents=True)
        name = module.replace("_", "-")
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[tile_hal]\n{name.removeprefix('tile-')} = {module}.plugin\n")
        package = self.folder / "site" / module
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "plugin.py").write_text(row.source)

    def look(self, *arguments: str, **variables: str) -> dict[str, Any]:
        """What another process sees of it, beside the devices of tile-hal."""
        mine = {
            "PYTHONPATH": os.pathsep.join([str(self.folder / "site"), *sys.path]),
            "TILE_CACHE_DIR": str(self.folder / "cache"),
            "TILE_PLUGINS": "-hal-llvm,-hal-opencl,-tile-sim,-tile-sample",
            "TILE_PLUGIN_SECONDS": self.seconds,
            "BAD_LOG": str(self.folder / "log"),
        }
        done = subprocess.run(
            [sys.executable, "-c", LOOK, *arguments], env=os.environ | mine | variables, capture_output=True, text=True
        )
        assert done.returncode == 0 and not done.stderr.strip().startswith("Traceback"), done.stderr
        found = json.loads(done.stdout)
        found["said"] = [text for text in found["said"] if "TILE_PLUGINS names" not in text]
        return found

    @property
    def imports(self) -> int:
        log = self.folder / "log"
        return log.read_text().count("imported") if log.exists() else 0


@pytest.mark.parametrize("row", FATAL, ids=lambda row: row.name.replace(" ", "-"))
def test_a_plugin_harms_only_itself(row: Row, tmp_path: Path) -> None:
    site = Site(tmp_path, tile_bad=row)
    found = site.look("doctor")
    assert found["devices"] == ["bad:0"] * row.listed + ["interp:0", "null:0"]
    assert found["status"]["tile-bad"] == row.status
    assert len(found["said"]) == bool(row.says), found["said"]
    assert all("tile-bad" in text and row.says in text for text in found["said"])
    assert (row.doctor or row.says or "bad is well") in "\n".join([*found["doctor"]["tile-bad"], *found["said"]])


def test_what_was_tried_is_remembered(tmp_path: Path) -> None:
    """A sound plugin costs two processes once; an edited one is tried again."""
    site = Site(tmp_path, tile_bad=FATAL[-1])
    assert site.look()["devices"][0] == "bad:0"
    assert site.imports == 3  # for its import, for its devices, and here
    site.look()
    assert site.imports == 4
    # Longer than any system call waits.
    site.look(TILE_CACHE="off", TILE_PLUGIN_SECONDS="9" * 9)
    assert site.imports == 7
    (tmp_path / "site/tile_bad/more.py").write_text("x = 1")
    site.look()
    assert site.imports == 10


def test_a_failure_is_remembered_until_the_doctor_is_asked(tmp_path: Path) -> None:
    site = Site(tmp_path, tile_bad=FATAL[2])
    first, second = site.look(), site.look()
    assert first["said"] == second["said"] != [] and site.imports == 1
    assert "`tile doctor` tries it again" in first["said"][0]


def test_plugins_are_chosen_by_name(tmp_path: Path) -> None:
    site = Site(tmp_path, tile_bad=FATAL[2])
    for chosen in ("-bad,tile_hal", "-Tile-Bad,tile-hal", "interp,null", "tile-hal,bad,-bad"):
        found = site.look(TILE_PLUGINS=chosen)
        assert found["devices"] == ["interp:0", "null:0"] and found["status"]["tile-bad"] == "left out", chosen
        assert found["said"] == [] and site.imports == 0
    assert site.look(TILE_PLUGINS="null")["devices"] == ["null:0"]


def test_an_uninstalled_plugin_is_gone(tmp_path: Path) -> None:
    site = Site(tmp_path, tile_bad=FATAL[-1])
    assert site.look()["devices"][0] == "bad:0"
    shutil.rmtree(tmp_path / "site")
    found = site.look("doctor")
    assert found["devices"] == ["interp:0", "null:0"] and found["said"] == []
    assert "tile-bad" not in found["status"] and "tile-bad" not in found["doctor"]


def test_a_name_that_no_plugin_has_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_PLUGINS", "-interpp")
    registry = Registry(own)
    with pytest.warns(tile_hal.TilePluginWarning, match="names 'interpp', but no plugin .* there are interp, null"):
        assert len(registry.devices()) == 2
    monkeypatch.setenv("TILE_PLUGINS", "-interp, ")
    registry = Registry(own)
    assert [d.id for d in registry.devices()] == ["null:0"]
    with pytest.raises(TileDeviceError, match="left out by TILE_PLUGINS"):
        registry.device("interp")
    monkeypatch.setenv("TILE_PLUGINS", "interp;null")
    with pytest.raises(TileSettingError, match="TILE_PLUGINS lists names"):
        Registry(own).devices()


def test_who_had_a_name_first_keeps_it(tmp_path: Path) -> None:
    """A later install cannot take a vendor's devices away, nor those that come with Tile; where nobody was first, both are named."""
    site = Site(tmp_path, tile_bad=FATAL[-1])
    assert site.look()["devices"][0] == "bad:0"
    site.install("tile_aaa", FATAL[-1])
    site.install("tile_zzz", Row("thief", "", on_class="name = 'interp'"))
    found = site.look()
    assert found["devices"] == ["bad:0", "interp:0", "null:0"]
    assert [found["status"][f"tile-{n}"] for n in ("aaa", "bad", "hal", "zzz")] == [
        "duplicate",
        "ok",
        "ok",
        "duplicate",
    ]
    kept = [text for text in found["said"] if "tile-bad keeps it" in text]
    assert len(found["said"]) == 2 and "tile-aaa" in kept[0] and "TILE_PLUGINS=-" in kept[0]
    elsewhere = site.look(TILE_CACHE_DIR=str(tmp_path / "other"))
    assert elsewhere["devices"] == ["interp:0", "null:0"]
    (text,) = [text for text in elsewhere["said"] if "'bad'" in text]
    assert "tile-aaa" in text and "tile-bad" in text and "cannot be used" in text


def test_what_comes_with_tile_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tile_hal.trials._try", lambda *_: pytest.fail("tried"))
    registry = Registry(own, tile_hal.discovery.Trials())
    assert [d.id for d in registry.devices()] == ["interp:0", "null:0"]
    assert all(report.lines for report in registry.doctor())
    assert "tile-hal" in _house()


def test_no_backend_is_named() -> None:
    """Which device is the default follows from priorities that drivers state: tile-hal's code knows no driver but its own.

    The scaffold of new backends knows which names are taken.
    """
    names = re.compile(r"llvm|opencl|cuda|rocm|level.?zero", re.IGNORECASE)
    found: list[str] = []
    for path in Path(tile_hal.__file__).parent.rglob("*.py"):
        if "scaffold" in path.parts:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
        for node in ast.walk(tree):
            word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
            if isinstance(word, str) and id(node) not in texts and names.search(word):
                found.append(f"{path.name}:{node.lineno} {word!r}")
    assert not found
