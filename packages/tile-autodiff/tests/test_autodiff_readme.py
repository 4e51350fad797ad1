"""The README's Python examples run as printed, and print what it shows."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path


def test_readme_examples_run() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    shown = re.findall(r"```\n(function.*?)```", text, re.DOTALL)[0]
    assert "gradient(" in code
    with redirect_stdout(StringIO()) as output:
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert shown.strip() in output.getvalue()
