"""The one settings object; environment variables only fill it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tile_ir.diagnostics import Diagnostic, TileSettingError
from tile_ir.frozen import frozen

_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?")
_THREADS = re.compile(r"0*[1-9][0-9]{0,5}")
_BYTES = re.compile(r"([0-9]{1,15})([KMGT]?)")
_LONGEST = 2e6
"""Seconds: twenty days, about the most that a system call waits."""
_PLUGIN = re.compile(r"-?[A-Za-z0-9_][A-Za-z0-9._-]*")


@frozen
class Settings:
    """Process-wide choices from the environment."""

    device: str | None = None
    """TILE_DEVICE: id of the default device."""
    dump_ir: Path | None = None
    """TILE_DUMP_IR: folder that receives one numbered file per pass."""
    verify: bool = False
    """TILE_VERIFY: what passes and lowering make is verified."""
    prove: bool = False
    """TILE_VERIFY=prove: every schedule is also proved to mean what the unscheduled program says."""
    cache_dir: Path | None = None
    """TILE_CACHE_DIR: folder of the kernel cache; the platform's cache folder when unset."""
    cache: str = "on"
    """TILE_CACHE: "on", "read" or "off"."""
    num_threads: int | None = None
    """TILE_NUM_THREADS: worker threads of CPU devices; affinity and cgroup decide when unset."""
    analysis_seconds: float = 10.0
    """TILE_ANALYSIS_SECONDS: seconds of a processor that the sets of one contraction may take; 0 for what is answered at once."""
    compile_seconds: float = 600.0
    """TILE_COMPILE_SECONDS: how long compiling one program may take; 0 for as long as it takes."""
    isolate: tuple[str, ...] = ()
    """TILE_ISOLATE: drivers that run in worker processes, such as "opencl" or "opencl,llvm"; "all" for every one."""
    isolate_seconds: float = 300.0
    """TILE_ISOLATE_SECONDS: how long a worker process may finish nothing before it is ended; 0 for as long as it takes."""
    compile_apart: bool = True
    """TILE_COMPILE_APART: compile in a worker process first where a device asks for it; 0 to compile in this one."""
    long_kernels: bool = False
    """TILE_LONG_KERNELS: kernels that would run for hours are not refused."""
    memory: int | None = None
    """TILE_MEMORY: bytes, such as 500M or 8G, that a program's results and temporaries may need; what its device has when unset."""
    plugins: tuple[str, ...] = ()
    """TILE_PLUGINS: names of plugins or their distributions, with commas between: only those are used; ``-name`` leaves one out."""
    plugin_seconds: float = 30.0
    """TILE_PLUGIN_SECONDS: how long a plugin may take for its import, and for finding its devices, when it is first tried."""

    @staticmethod
    def from_environment(env: Mapping[str, str] | None = None) -> Settings:
        """Read the TILE_* variables; an empty one counts as unset, a malformed one raises TileSettingError naming it."""
        env = os.environ if env is None else env
        threads = env.get("TILE_NUM_THREADS", "")
        if threads and not _THREADS.fullmatch(threads):
            raise malformed(f"TILE_NUM_THREADS must be a positive integer of few digits, not {threads!r:.40}")
        cache = env.get("TILE_CACHE") or "on"
        if cache not in ("on", "read", "off"):
            raise malformed(f"TILE_CACHE must be on, read or off, not {cache!r:.40}")
        return Settings(
            device=env.get("TILE_DEVICE") or None,
            dump_ir=Path(env["TILE_DUMP_IR"]) if env.get("TILE_DUMP_IR") else None,
            verify=env.get("TILE_VERIFY", "0") not in ("", "0"),
            prove=env.get("TILE_VERIFY") == "prove",
            cache_dir=Path(env["TILE_CACHE_DIR"]) if env.get("TILE_CACHE_DIR") else None,
            cache=cache,
            num_threads=int(threads) if threads else None,
            long_kernels=env.get("TILE_LONG_KERNELS", "0") not in ("", "0"),
            analysis_seconds=_seconds(env, "TILE_ANALYSIS_SECONDS", 10.0),
            compile_seconds=_seconds(env, "TILE_COMPILE_SECONDS", 600.0),
            memory=_bytes(env, "TILE_MEMORY"),
            plugins=_plugins(env.get("TILE_PLUGINS", "")),
            plugin_seconds=_seconds(env, "TILE_PLUGIN_SECONDS", 30.0),
            compile_apart=(env.get("TILE_COMPILE_APART") or "1") != "0",
            isolate=_names(env, "TILE_ISOLATE"),
            isolate_seconds=_seconds(env, "TILE_ISOLATE_SECONDS", 300.0),
        )


def _names(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    given = [part.strip() for part in env.get(name, "").split(",")]
    if given != [""] and not all(part.isidentifier() for part in given):
        raise malformed(f"{name} must be names of drivers such as opencl or opencl,llvm, not {env[name]!r:.40}")
    return tuple(part for part in given if part)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    given = env.get(name, "")
    if given and not _DECIMAL.fullmatch(given):
        raise malformed(f"{name} must be a number of seconds such as 10 or 0.5, not {given!r:.40}")
    return min(float(given), _LONGEST) if given else default


def _bytes(env: Mapping[str, str], name: str) -> int | None:
    given = env.get(name, "")
    found = _BYTES.fullmatch(given)
    if given and not found:
        raise malformed(f"{name} must be a number of bytes such as 500M or 8G, not {given!r:.40}")
    return int(found[1]) << 10 * " KMGT".index(found[2] or " ") if found else None


def _plugins(given: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if bad := [name for name in names if not _PLUGIN.fullmatch(name)]:
        raise malformed(f"TILE_PLUGINS lists names such as a,b or -c, with commas between, not {bad[0]!r:.40}")
    return names


def malformed(message: str) -> TileSettingError:
    """The error for a variable that cannot be followed."""
    return TileSettingError(Diagnostic("TILE-E060", message, hint="correct the environment variable, or unset it"))
