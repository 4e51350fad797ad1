"""The plugin's sources, whether it is installed or not, and the compiler's random programs."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent / "src", HERE.parents[3] / "packages" / "tile-opt" / "tests"):
    sys.path.insert(0, str(folder))
