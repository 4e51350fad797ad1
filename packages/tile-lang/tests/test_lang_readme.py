"""The README's Python examples run as printed."""

import re
from pathlib import Path


def test_readme_examples_run() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert "tile_lang.evaluate" in code
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
