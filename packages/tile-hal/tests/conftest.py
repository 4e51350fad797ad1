"""What tests share is beside them. The conformance suite's own tests need the extra ``tile-hal[conformance]``; without it they are not collected."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

_EXTRA = ("hypothesis", "tile_lang", "tile_opt")
collect_ignore = (
    []
    if all(find_spec(name) for name in _EXTRA)
    else ["test_hal_conformance.py", "test_hal_isolation.py", "test_hal_stripe.py"]
)
