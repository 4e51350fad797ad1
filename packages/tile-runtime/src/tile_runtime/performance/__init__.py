"""How fast a device is, beside what it could be: a dozen kernels on drawn shapes, each with its share of the device's peaks.

``tile conformance --performance --backend NAME`` from the command line, `run` from Python.
"""

from __future__ import annotations

from tile_runtime.performance.measuring import run as run
from tile_runtime.performance.report import PerformanceReport as PerformanceReport

__all__ = ["PerformanceReport", "run"]
