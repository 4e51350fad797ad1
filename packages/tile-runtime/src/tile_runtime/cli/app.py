"""The commands of `tile`, put together; nothing heavy is imported before a command runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from tile_runtime.cli import (
    bench,
    build,
    cache,
    calibrate,
    check,
    conformance,
    devices,
    doctor,
    explain,
    fmt,
    grad,
    ir,
    new_backend,
    plan,
    plugins,
    profile,
    project,
    run,
    tune,
)
from tile_runtime.cli.brought import Commands
from tile_runtime.cli.errors import reported
from tile_runtime.cli.helping import WIDTH, Grouped

EXIT_CODES = (
    "Exit codes: 0 nothing to report, 1 findings or an error in what was given, 2 wrong usage or unreadable file."
)

app = typer.Typer(
    name="tile",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Compile, run and look into Tile functions.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)
cache_app = typer.Typer(
    cls=Grouped, no_args_is_help=True, rich_markup_mode=None, help="The kernel cache on disk.", epilog=EXIT_CODES
)


def _version(value: bool) -> None:
    if value:
        from tile_runtime import __version__

        print(f"tile {__version__}")
        raise typer.Exit


@app.callback()
def tile(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile, run and look into Tile functions."""


def _add(target: typer.Typer, panel: str, name: str, command: Callable[..., None], example: str, **more: Any) -> None:
    epilog = f"Example: {example}. {EXIT_CODES}"
    target.command(name, epilog=epilog, rich_help_panel=panel, **more)(reported(command))


START, WRITE, RUN = "Start", "Write", "Run and measure"
LOOK, DEVICES = "Look into the compiler", "Devices and backends"
_MATMUL = "matmul.tile --shape 'A=[512,512]' --shape 'B=[512,512]'"

_add(app, START, "new", project.new, "tile new my_filter")
_add(app, WRITE, "check", check.check, "tile check conv.tile --shape 'D=float32[1,8,8,3]' --shape 'K=float32[3,3,4,3]'")
_add(app, WRITE, "fmt", fmt.fmt, "tile fmt --check conv.tile")
_add(app, WRITE, "grad", grad.grad, "tile grad matmul.tile --wrt A --shape 'A=[2,3]' --shape 'B=[3,4]'")
_add(
    app,
    RUN,
    "run",
    run.run,
    "tile run matmul.tile --input A=a.npy --shape 'B=[512,512]' --output C=c.npy --device llvm",
)
_add(app, RUN, "bench", bench.bench, f"tile bench {_MATMUL} --json")
_add(app, RUN, "profile", profile.profile, "tile profile model.py:network --trace calls.json")
_add(app, RUN, "tune", tune.tune, f"tile tune {_MATMUL} --trials 6")
_add(
    app,
    RUN,
    "build",
    build.build,
    "tile build conv.tile -s 'D=[1,56,56,64]' -s 'K=[3,3,64,64]' -o libconv.so --header conv.h",
)
_add(app, LOOK, "explain", explain.explain, f"tile explain {_MATMUL}")
_add(app, LOOK, "plan", plan.plan, f"tile plan {_MATMUL} > my.plan")
_add(
    app, LOOK, "ir", ir.ir, "tile ir matmul.tile --stage stripe --after schedule_kernels --shape 'A=[64,64]' --shape 'B=[64,64]'"
)  # fmt: skip
_add(app, DEVICES, "devices", devices.devices, "tile devices --json")
_add(app, DEVICES, "doctor", doctor.doctor, "tile doctor")
_add(app, DEVICES, "plugins", plugins.plugins, "tile plugins")
_add(app, DEVICES, "calibrate", calibrate.calibrate, "tile calibrate --device llvm")
_add(
    app, DEVICES, "conformance", conformance.conformance, "tile conformance --backend llvm --level 2 -- -k kernel",
    cls=conformance.Forwarding, context_settings=conformance.FORWARDED,
)  # fmt: skip
_add(app, DEVICES, "new-backend", new_backend.new_backend, "tile new-backend my_chip --kind c")
_add(cache_app, "Commands", "info", cache.info, "tile cache info --json")
_add(cache_app, "Commands", "clear", cache.clear, "tile cache clear")
_add(cache_app, "Commands", "verify", cache.verify, "tile cache verify")
app.add_typer(cache_app, name="cache", rich_help_panel=DEVICES)
