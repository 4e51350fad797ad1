"""Say what files are with Google's magika: a network that looks at the first and the last bytes.

    python integration/examples/file_types.py [FILE ...] [--device llvm]

Without files it makes some: Python, JSON, CSV, Markdown, a PNG picture, a program. Needs the models of
`python3 dev.py models`.
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import wheels

Array = np.ndarray[Any, Any]
SETTINGS = "magika/models/standard_v3_3/config.min.json"


def features(data: bytes, settings: Mapping[str, Any]) -> Array:
    """The first and last bytes without the white space around them, int32 [2048]; padding has a number of its own."""
    first, last = data[: settings["block_size"]].lstrip(), data[-settings["block_size"] :].rstrip()
    ends = first[: settings["beg_size"]], last[-settings["end_size"] :]
    made = np.full(settings["beg_size"] + settings["end_size"], settings["padding_token"], np.int32)
    made[: len(ends[0])] = np.frombuffer(ends[0], np.uint8)
    made[len(made) - len(ends[1]) :] = np.frombuffer(ends[1], np.uint8)
    return made


def samples() -> dict[str, bytes]:
    """Files of several types, by name."""
    here = Path(__file__)
    root = here.resolve().parents[2]
    table = "\n".join(["name,year,price,colour", *(f"item {k},{1990 + k},{k * 1.25:.2f},blue" for k in range(60))])
    rows = json.dumps(
        [{"id": k, "name": f"item {k}", "tags": ["a", "b"], "price": 1.5 * k} for k in range(40)], indent=1
    )
    return {
        "file_types.py": here.read_bytes(),
        "README.md": (root / "README.md").read_bytes(),
        "items.json": rows.encode(),
        "items.csv": table.encode(),
        "picture.png": picture(),
        "python": Path(sys.executable).resolve().read_bytes(),
        "archive.zip": archive({"README.md": (root / "README.md").read_bytes(), "items.csv": table.encode()}),
    }


def picture() -> bytes:
    """A PNG of 64 by 64 grey pixels."""
    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(64)) for y in range(64))
    parts = (b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    chunks = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def archive(files: Mapping[str, bytes]) -> bytes:
    """A zip file of these files."""
    made = io.BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as target:
        for name, data in files.items():
            target.writestr(name, data)
    return made.getvalue()


def told(files: Mapping[str, bytes], device: str | None = None) -> dict[str, tuple[str, float]]:
    """The type of each file, and how sure the network is."""
    import tile_onnx

    settings = wheels.settings("magika", SETTINGS)
    batch = np.stack([features(data, settings) for data in files.values()])
    scores = tile_onnx.load(wheels.model("magika"), device)(batch)["target_label"]
    names = settings["target_labels_space"]
    return {f: (names[int(row.argmax())], float(row.max())) for f, row in zip(files, scores, strict=True)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="files to look at (default: some are made)")
    parser.add_argument("--device", help="a device id such as llvm or opencl:0 (default: the best there is)")
    options = parser.parse_args(arguments)
    files = {str(f): f.read_bytes() for f in options.files} or samples()
    for name, (label, score) in told(files, options.device).items():
        print(f"{score:.3f}  {label:12} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
