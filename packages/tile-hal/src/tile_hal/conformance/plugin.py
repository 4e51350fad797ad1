"""The pytest plugin: options, the backend's devices as a parameter, capabilities, quirks, and the report.

pytest imports this module in every run of the environment (entry point group ``pytest11``), so it imports
nothing of weight and does nothing until a conformance option or test appears.
"""

from __future__ import annotations
