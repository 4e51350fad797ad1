"""`tile calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tile_runtime.cli.common import Device, Json, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from tile_runtime.measuring.calibration import Calibration, Measured


def calibrate(
    device: Device = None,
    forget: Annotated[bool, typer.Option("--forget", help="Remove what is stored instead of measuring.")] = False,
    json: Json = False,
) -> None:
    """Measure a device's rates in a few seconds and keep them, so that predicted times and the choice of plans get better.

    Best on a quiet machine. Results never depend on it.
    """
    from tile_runtime.devices import device as find
    from tile_runtime.measuring import machines

    found = find(device)
    if forget:
        removed = machines.forget(found)
        if json:
            print_json({"device": found.id, "forgotten": removed})
        else:
            print(f"{found.id}: {'forgotten' if removed else 'nothing was stored'}")
        return
    result = _with_progress(found)
    path = machines.keep(found, result.machine)
    if json:
        print_json(
            {
                "device": found.id,
                "file": str(path),
                "probes": [_record(m) for m in result.probes],
                "trials": [_record(m) for m in result.trials],
            }
        )
    else:
        _show(result)
        print_pairs({"kept in": path})


def _with_progress(device: Any) -> Calibration:
    from rich.console import Console

    from tile_runtime.measuring.calibration import calibrate as measure

    with Console(stderr=True).status("") as status:
        return measure(device, lambda name: status.update(f"measuring: {name}"))


def _record(measured: Measured) -> dict[str, Any]:
    failed = measured.seconds == float("inf")
    return {
        "program": measured.program.name,
        "seconds": None if failed else measured.seconds,
        "predicted_before": measured.before,
        "predicted_after": measured.after,
    }


def _show(result: Calibration) -> None:
    for title, measured in (("Probe", result.probes), ("Trial", result.trials)):
        rows = [(m.program.name, *map(_microseconds, (m.seconds, m.before, m.after))) for m in measured]
        print_table((title, "measured us", "predicted before", "and after"), rows)


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.4g}" if seconds < float("inf") else "failed"
