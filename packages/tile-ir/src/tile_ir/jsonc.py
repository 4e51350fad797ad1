"""JSON as people write configurations: ``//`` comments and trailing commas are allowed."""

from __future__ import annotations

import json
import re
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileDeviceError

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|,(?=\s*(?://[^\n]*\s*)*[}\]])')


def read_json(text: str, what: str = "the document") -> Any:
    """The value of `text`; TileDeviceError TILE-E410 with line and column when it is no JSON."""
    plain = _TOKEN.sub(lambda m: m[0] if m[0].startswith('"') else " " * len(m[0]), text)
    try:
        return json.loads(plain)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1].strip() if text.strip() else ""
        message = f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}: {line}"
        hint = 'curly quotes are not JSON: use "' if "”" in line or "“" in line else ""
        raise TileDeviceError(Diagnostic("TILE-E410", message, hint=hint)) from error
