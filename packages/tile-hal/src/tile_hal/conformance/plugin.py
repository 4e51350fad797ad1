"""The pytest plugin: options, the backend's devices as a parameter, and the session that records what happens.

pytest imports this module in every run of the environment (entry point group ``pytest11``), so it imports
nothing of weight and does nothing until a conformance option or test appears.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tile_hal.conformance import TIMEOUT

if TYPE_CHECKING:
    from tile_hal.conformance.session import Session

_HERE = Path(__file__).parent
OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--tile-backend", "--backend"),
        {"dest": "tile_backend", "metavar": "NAME", "help": "driver name (or device id) to run the conformance suite on"},
    ),
    (
        ("--tile-plugin",),
        {
            "dest": "tile_plugins", "metavar": "MODULE", "action": "append", "default": [],
            "help": "module with the hook of a plugin that is not installed",
        },
    ),
    (
        ("--strict-backend",),
        {"dest": "tile_strict", "action": "store_true", "help": "a backend without devices is an error, not a skip"},
    ),
    (
        ("--tile-level",),
        {"dest": "tile_level", "type": int, "default": 5, "metavar": "N", "help": "run levels 0 to N (default: all)"},
    ),
    (
        ("--tile-examples",),
        {"dest": "tile_examples", "type": int, "metavar": "N", "help": "random programs per strategy (default: 40)"},
    ),
    (
        ("--tile-seed",),
        {"dest": "tile_seed", "type": int, "metavar": "N", "help": "other random programs than the usual ones"},
    ),
    (
        ("--tile-timeout",),
        {
            "dest": "tile_timeout", "type": float, "default": TIMEOUT, "metavar": "S",
            "help": f"seconds until a test that hangs fails (default: {TIMEOUT:g}); after three, the level ends",
        },
    ),
    (("--tile-record",), {"dest": "tile_record", "metavar": "FILE", "help": "continue the run that FILE records"}),
    (("--tile-json",), {"dest": "tile_json", "metavar": "FILE", "help": "write the report as JSON"}),
    (("--tile-markdown",), {"dest": "tile_markdown", "metavar": "FILE", "help": "write the support table as Markdown"}),
    (("--tile-badge",), {"dest": "tile_badge", "metavar": "FILE", "help": "write a badge of the level, for shields.io"}),
)  # fmt: skip
SESSION: pytest.StashKey[Session] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tile", "Tile HAL conformance")
    for names, options in OPTIONS:
        # `--backend` is a common word: without it when another plugin of the environment has it.
        try:
            group.addoption(*names, **options)
        except ValueError:
            with suppress(ValueError):
                group.addoption(names[0], **options)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "compile_only: a conformance test that needs no execution")
    config.addinivalue_line("markers", "takes(form): a conformance test of devices that take semtree, or stripe")
    if not config.getoption("tile_backend"):
        if any("tile_hal.conformance" in str(arg) for arg in config.invocation_params.args):
            raise pytest.UsageError("the Tile conformance suite needs --backend NAME (`tile devices` lists them)")
        return
    from tile_hal.conformance.session import Session

    config.stash[SESSION] = session = Session.of(config)
    config.pluginmanager.register(session, "tile-conformance-session")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without a backend, a run that happens upon this folder collects nothing from it."""
    inside = collection_path.is_relative_to(_HERE) and collection_path.name.startswith("test_")
    return True if inside and not config.getoption("tile_backend") else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One instance of every conformance test per device of the backend."""
    if "tile_device" not in metafunc.fixturenames:
        return
    session = metafunc.config.stash.get(SESSION, None)
    devices = session.devices if session is not None else ()
    if devices:
        metafunc.parametrize("tile_device", devices, ids=[d.id for d in devices], scope="session")
        return
    reason = f"backend {metafunc.config.getoption('tile_backend')!r} has no device here"
    metafunc.parametrize("tile_device", [pytest.param(None, marks=pytest.mark.skip(reason=reason))], ids=["none"])


@pytest.fixture(scope="session")
def tile_examples(request: pytest.FixtureRequest) -> tuple[int, int | None]:
    """Random programs per strategy, and their seed (None: always the same ones)."""
    option = request.config.getoption
    return cast(int | None, option("tile_examples")) or 40, cast(int | None, option("tile_seed"))
