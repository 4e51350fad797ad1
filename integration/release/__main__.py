"""Version, build and check a release: python -m release PACKAGE VERSION [--dry-run]

PACKAGE is one of packages/, or `all`. The version goes into pyproject.toml, `__version__` and the changelog, whose section
"Unreleased" gets its name and date; wheel and sdist are built under the names of publishing.toml into build/release, and `twine check`
reads them. Nothing is uploaded. With --dry-run the working tree stays as it is.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release import names
from release.staging import ROOT, family, publishing, staged
from release.versions import Refused, check, excluded, state

OUTPUT = ROOT / "build" / "release"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 dev.py release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", help="a folder of packages/, or all")
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument("--dry-run", action="store_true", help="leave the working tree as it is")
    options = parser.parse_args(arguments)
    chosen = family() if options.package == "all" else [options.package]
    try:
        for package in chosen:  # all of them before the first is touched
            _check(package, options)
        with tempfile.TemporaryDirectory() as scratch:
            built = [f for package in chosen for f in _released(package, options, Path(scratch))]
    except Refused as reason:
        print(reason, file=sys.stderr)
        return 2
    status = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)], check=False
    ).returncode
    print(f"{len(built)} files in {OUTPUT}; RELEASING.md says what comes next" if not status else "twine refuses")
    return status


def _check(package: str, options: argparse.Namespace) -> None:
    """Refused: what cannot be released."""
    folder, settings = ROOT / "packages" / package, publishing()
    if not folder.is_dir():
        raise Refused(f"there is no package {package}; packages are {', '.join(family())}")
    if not settings.decided and not options.dry_run:
        raise Refused(f"publishing.toml still says {settings.repository}: set the repository's address first")
    check(folder, options.version)
    if left := [*excluded(ROOT / "packages", package, options.version)]:
        raise Refused(f"the bounds of {', '.join(left)} leave {package} {options.version} out")


def _released(package: str, options: argparse.Namespace, scratch: Path) -> list[Path]:
    """The wheel and the sdist of a package."""
    folder = ROOT / "packages" / package
    copy = staged(package, publishing(), scratch)
    state(copy, options.version)
    if not options.dry_run:
        state(folder, options.version)
        names.write(package)
    return _built(copy)


def _built(folder: Path) -> list[Path]:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    into = Path(tempfile.mkdtemp(dir=OUTPUT))
    subprocess.check_call(
        [sys.executable, "-m", "hatchling", "build", "-d", str(into)], cwd=folder, stdout=subprocess.DEVNULL
    )
    made = [Path(shutil.move(file, OUTPUT / file.name)) for file in sorted(into.iterdir())]
    into.rmdir()
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
