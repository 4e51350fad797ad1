"""``python -m tile_hal.plugin_process STAGE NAME MODULE``: one plugin, in a process that it may take with it.

It writes one JSON document to what was standard output, while the plugin writes to a file.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import EntryPoint

from tile_hal import discovery
from tile_hal.interfaces import Driver
from tile_hal.loading import ANSWERS, PARTS, call_hook, doctor_lines, flaw
from tile_hal.trials import GROUP, Stage, Trials


def main() -> None:
    stage, name, module = sys.argv[1:]
    answer = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        problem, lines = _outcome(Stage[stage], EntryPoint(name, module, GROUP))
        with suppress(Exception):
            sys.stdout.flush()
        file.seek(0)
        text = file.read(1 << 16).decode(errors="replace").strip()
        os.dup2(2, 1)
    document = {"problem": problem, "printed": text.partition("\n")[0], "lines": lines}
    with os.fdopen(answer, "w") as out:
        json.dump(document, out)


def _outcome(stage: Stage, point: EntryPoint) -> tuple[str, list[str]]:
    """What the driver's own check says, or how it failed; elsewhere what is raised does no harm where it is met again."""
    discovery.only_trusted(Trials())
    try:
        driver = call_hook(point.load())
        if stage is not Stage.IMPORT:
            _forget_output()
        if stage is Stage.PROBE:
            _look(driver)
        return "", list(doctor_lines(driver)) if stage is Stage.DOCTOR else []
    except (Exception, SystemExit) as problem:
        return f"{type(problem).__name__}: {problem}" if stage is Stage.DOCTOR else "", []


def _forget_output() -> None:
    """What the import prints was found out when that was tried."""
    sys.stdout.flush()
    os.ftruncate(1, 0)
    os.lseek(1, 0, os.SEEK_SET)


def _look(driver: Driver) -> None:
    """All that is asked of a device before it computes anything."""
    for group in driver.device_sets():
        for device in group.devices:
            flaw(device, driver.name, PARTS | ANSWERS)


if __name__ == "__main__":
    main()
