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
    run,
    tune,
)
from tile_runtime.cli.brought import Commands
from tile_runtime.cli.errors import reported

EXIT_CODES = (
    "Exit codes: 0 nothing to report, 1 findings or an error in what was given, 2 wrong usage or unreadable file."
)

app = typer.Typer(
    name="tile",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Compile, run and look into Tile functions.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cache_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The kernel cache on disk.", epilog=EXIT_CODES
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


def _add(target: typer.Typer, name: str, command: Callable[..., None], example: str, **more: Any) -> None:
    target.command(name, epilog=f"Example: {example}. {EXIT_CODES}", **more)(reported(command))


_add(app, "devices", devices.devices, "tile devices --json")
_add(app, "doctor", doctor.doctor, "tile doctor")
_add(app, "check", check.check, "tile check conv.tile --shape 'D=float32[1,8,8,3]' --shape 'K=float32[3,3,4,3]'")
_add(app, "fmt", fmt.fmt, "tile fmt --check conv.tile")
_add(
    app,
    "ir",
    ir.ir,
    "tile ir matmul.tile --stage stripe --after schedule_kernels --shape 'A=[64,64]' --shape 'B=[64,64]'",
)
_add(app, "explain", explain.explain, "tile explain matmul.tile --shape 'A=[512,512]' --shape 'B=[512,512]'")
_add(app, "plan", plan.plan, "tile plan matmul.tile --shape 'A=[512,512]' --shape 'B=[512,512]' > my.plan")
_add(app, "run", run.run, "tile run matmul.tile --input A=a.npy --input B=b.npy --output C=c.npy --device llvm")
_add(app, "grad", grad.grad, "tile grad matmul.tile --wrt A --shape 'A=[2,3]' --shape 'B=[3,4]'")
_add(app, "bench", bench.bench, "tile bench matmul.tile --shape 'A=[512,512]' --shape 'B=[512,512]' --json")
_add(
    app,
    "build",
    build.build,
    "tile build conv.tile -s 'D=[1,56,56,64]' -s 'K=[3,3,64,64]' -o libconv.so --header conv.h",
)
_add(app, "tune", tune.tune, "tile tune matmul.tile --shape 'A=[512,512]' --shape 'B=[512,512]' --trials 6")
_add(app, "calibrate", calibrate.calibrate, "tile calibrate --device llvm")
_add(app, "plugins", plugins.plugins, "tile plugins")
_add(app, "new-backend", new_backend.new_backend, "tile new-backend my_chip --kind c")
_add(
    app, "conformance", conformance.conformance, "tile conformance --backend llvm --level 2 -- -k kernel",
    cls=conformance.Forwarding, context_settings=conformance.FORWARDED,
)  # fmt: skip
_add(cache_app, "info", cache.info, "tile cache info --json")
_add(cache_app, "clear", cache.clear, "tile cache clear")
_add(cache_app, "verify", cache.verify, "tile cache verify")
app.add_typer(cache_app, name="cache")
