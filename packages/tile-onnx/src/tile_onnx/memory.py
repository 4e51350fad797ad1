"""How much memory there is: what cannot fit is refused by name instead of being tried."""

from __future__ import annotations

import os
from functools import cache


@cache
def machine_memory() -> int:
    """Bytes of this machine's memory; 2**40 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**40
