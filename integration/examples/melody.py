"""Write down the notes of a melody with Spotify's basic_pitch.

    python integration/examples/melody.py [--device llvm] [--output demo-output]

The melody is synthesised here: plucked tones with overtones. Its notes are printed, and drawn as a piano roll in
melody.png. Needs Pillow, and the models of `python3 dev.py models`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import wheels

Array = np.ndarray[Any, Any]

RATE = 22050
WINDOW = 2 * RATE - 256
"""Samples that the network takes."""
FRAMES = 172
"""Moments that it gives for them, 256 samples apart."""
OVERLAP = 30
"""Moments that neighbouring windows share; half of them go from each end."""
HOP = WINDOW - OVERLAP * 256
PER_SECOND = RATE // 256
LOWEST = 21
"""The number of the lowest key of a piano, in MIDI's count."""
ONSET, HELD = 0.5, 0.3
SHORTEST = 8
"""Moments below which a note is none."""
NOTES, ONSETS = "StatefulPartitionedCall:1", "StatefulPartitionedCall:2"
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


@dataclass(frozen=True, slots=True)
class Note:
    """A key in MIDI's count (60 is C4), from when to when in seconds."""

    key: int
    start: float
    end: float

    def __str__(self) -> str:
        return f"{NAMES[self.key % 12]}{self.key // 12 - 1} {self.start:.2f}-{self.end:.2f} s"


TUNE = tuple(
    Note(key, 0.1 + 0.4 * k, 0.1 + 0.4 * k + 0.36) for k, key in enumerate((60, 64, 67, 72, 71, 67, 65, 62, 60, 55))
)


def played(notes: Sequence[Note] = TUNE, noise: float = 3e-3) -> Array:
    """The notes as sound, float32 from -1 to 1, with a little noise."""
    sound = noise * np.random.default_rng(0).standard_normal(round((notes[-1].end + 0.3) * RATE))
    for note in notes:
        time = np.arange(round((note.end - note.start) * RATE)) / RATE
        pitch = 440 * 2 ** ((note.key - 69) / 12)
        tone = sum(0.5**h * np.sin(2 * np.pi * (h + 1) * pitch * time) for h in range(5))
        envelope = np.minimum(1, time / 0.01) * np.exp(-2.5 * time) * np.minimum(1, (time[-1] - time) / 0.02)
        start = round(note.start * RATE)
        sound[start : start + len(time)] += 0.3 * tone * envelope
    return sound.astype(np.float32)


def windows(sound: Array) -> Array:
    """Overlapping parts of a sound, [N, WINDOW, 1]; the first one begins with silence."""
    padded = np.concatenate([np.zeros(OVERLAP // 2 * 256, np.float32), sound])
    starts = range(0, len(padded), HOP)
    return np.stack([np.pad(part := padded[s : s + WINDOW], (0, WINDOW - len(part))) for s in starts])[..., None]


def joined(parts: Array, samples: int) -> Array:
    """What the network says of the windows, [N, FRAMES, keys], as one course of [moments, keys]."""
    kept = parts[:, OVERLAP // 2 : -OVERLAP // 2]
    return kept.reshape(-1, parts.shape[2])[: samples * PER_SECOND // RATE]


def found(notes: Array, onsets: Array) -> list[Note]:
    """Notes in order: they begin where an onset is likeliest, and last while the key is likely held."""
    around = np.pad(onsets, ((1, 1), (0, 0)))
    peaks = (onsets > ONSET) & (onsets >= around[:-2]) & (onsets > around[2:])
    result: list[Note] = []
    for key in range(notes.shape[1]):
        starts = np.flatnonzero(peaks[:, key]).tolist()
        for start, until in pairwise([*starts, len(notes)]):
            silent = np.flatnonzero(notes[start:until, key] < HELD)
            end = start + int(silent[0]) if len(silent) else until
            if end - start >= SHORTEST:
                result.append(Note(key + LOWEST, start / PER_SECOND, end / PER_SECOND))
    return sorted(result, key=lambda n: (n.start, n.key))


def transcribed(sound: Array, device: str | None = None) -> list[Note]:
    """The notes of a sound."""
    import tile_onnx

    given = tile_onnx.load(wheels.model("pitch"), device)(windows(sound))
    return found(*(joined(given[name], len(sound)) for name in (NOTES, ONSETS)))


def roll(notes: Sequence[Note]) -> Any:
    """A picture of the notes: time to the right, pitch upwards."""
    from PIL import Image, ImageDraw, ImageFont

    low, high = min(n.key for n in notes) - 2, max(n.key for n in notes) + 3
    page = Image.new("RGB", (round(160 * notes[-1].end) + 60, 16 * (high - low)), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(12)
    for note in notes:
        top = 16 * (high - note.key - 1)
        pen.rectangle((round(160 * note.start), top, round(160 * note.end), top + 14), fill=(70, 130, 200))
        pen.text((round(160 * note.start) + 4, top), str(note).partition(" ")[0], fill="white", font=font)
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="a device id such as llvm or opencl:0 (default: the best there is)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder of melody.png")
    options = parser.parse_args(arguments)
    notes = transcribed(played(), options.device)
    print("\n".join(map(str, notes)))
    options.output.mkdir(parents=True, exist_ok=True)
    roll(notes).save(options.output / "melody.png")
    print(f"saved {options.output / 'melody.png'}")
    return 0 if [n.key for n in notes] == [n.key for n in TUNE] else 1


if __name__ == "__main__":
    sys.exit(main())
