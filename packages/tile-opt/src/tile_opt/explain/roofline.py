"""The roofline as an inline SVG: operations per byte across, share of peak arithmetic up, both logarithmic."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10

from tile_opt.explain.data import KernelReport, Roofline

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 16, 44


class _Axes:
    """Decades of both axes, and data in pixels."""

    def __init__(self, roofs: list[Roofline]) -> None:
        low = min([r.intensity for r in roofs] + [r.knee for r in roofs]) / 2
        high = max([r.intensity for r in roofs] + [r.knee for r in roofs]) * 2
        self.x0, self.x1 = floor(log10(low)), ceil(log10(high))
        self.y0 = min(-1, floor(log10(min(r.attainable for r in roofs) / 1.5)))

    def x(self, intensity: float) -> float:
        return round(LEFT + (log10(intensity) - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, share: float) -> float:
        top = TOP + 18
        return round(top + log10(max(share, 10.0**self.y0)) / self.y0 * (HEIGHT - BOTTOM - top), 1)


def roofline_svg(kernels: tuple[KernelReport, ...]) -> str:
    """The plot; a sentence where no kernel does arithmetic."""
    shown = [(number, k, k.roofline) for number, k in enumerate(kernels) if k.roofline is not None]
    if not shown:
        return "<p>No kernel does arithmetic.</p>"
    axes = _Axes([roof for _, _, roof in shown])
    marks = [_mark(axes, number, kernel, roof, place) for place, (number, kernel, roof) in enumerate(shown)]
    body = "".join([*_ticks(axes), _roof(axes, shown[0][2].knee), *marks])
    label = "Roofline: share of peak arithmetic by operations per byte"
    return f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{body}</svg>'


def _ticks(axes: _Axes) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts: list[str] = []
    for power in range(axes.x0, axes.x1 + 1):
        x = axes.x(10.0**power)
        parts.append(f'<line class="tick" x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{10.0**power:g}</text>')
    for power in range(axes.y0, 1):
        y = axes.y(10.0**power)
        parts.append(f'<line class="tick" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{100 * 10.0**power:g} %</text>')
    parts.append(
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">operations per byte of memory traffic</text>'
    )
    return parts


def _roof(axes: _Axes, knee: float) -> str:
    """The bound of memory up to the knee, that of arithmetic from there; the band below is what can be reached."""
    start = max(10.0**axes.x0, knee * 10.0**axes.y0)
    points = [(axes.x(start), axes.y(start / knee)), (axes.x(knee), axes.y(1.0)), (axes.x(10.0**axes.x1), axes.y(1.0))]
    line = " ".join(f"{x},{y}" for x, y in points)
    floor_ = axes.y(10.0**axes.y0)
    area = f"{points[0][0]},{floor_} {line} {points[-1][0]},{floor_}"
    knee_x = axes.x(knee)
    return (
        f'<polygon class="reach" points="{area}"/><polyline class="roof" points="{line}"/>'
        f'<line class="knee" x1="{knee_x}" y1="{axes.y(1.0)}" x2="{knee_x}" y2="{floor_}"/>'
        f'<text x="{knee_x + 5}" y="{floor_ - 6}">knee {knee:g}</text>'
    )


def _mark(axes: _Axes, number: int, kernel: KernelReport, roof: Roofline, place: int) -> str:
    """A dot on the roof; a ring where the cost model expects the kernel, below it."""
    x, y = axes.x(roof.intensity), axes.y(roof.attainable)
    reached = None if kernel.plan.prediction is None else kernel.plan.prediction.share
    title = f"{kernel.name}: {roof.intensity:.3g} operations per byte, {roof.bound} bound, at most {roof.attainable:.0%} of peak"
    parts = [f"<title>{escape(title)}</title>"]
    if reached is not None and reached < roof.attainable:
        low = axes.y(reached)
        parts.append(
            f'<line class="gap" x1="{x}" y1="{y}" x2="{x}" y2="{low}"/><circle class="ring" cx="{x}" cy="{low}" r="5"/>'
        )
    parts.append(f'<circle class="dot" cx="{x}" cy="{y}" r="5"/>')
    # Beside the slope labels go below it; on the flat part neighbours alternate sides.
    end = x > WIDTH - 130
    dy = -9 if place % 2 == 0 and roof.bound == "compute" else 18
    parts.append(
        f'<text class="name" x="{x - 8 if end else x + 8}" y="{y + dy}" text-anchor="{"end" if end else "start"}">{escape(kernel.name)}</text>'
    )
    return f'<a href="#k{number}" data-k="{number}" class="mark">{"".join(parts)}</a>'
