"""``python -m tile_lsp``: the same as `tile-lsp`."""

from __future__ import annotations

import sys

from tile_lsp.command import main

sys.exit(main())
