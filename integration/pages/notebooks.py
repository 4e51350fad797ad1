"""The notebooks: docs/notebooks/*.py, whose cells begin with ``# %%``, as executed .ipynb files and as pages."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages.markdown import fenced

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
CELL = re.compile(r"^# %%(?: \[(markdown)\])?\n(.*?)(?=^# %%|\Z)", re.MULTILINE | re.DOTALL)
INDEX = "# Notebooks\n\nExecuted when this site was made; each can be downloaded.\n\n"


def cells(source: str) -> Iterator[tuple[str, str]]:
    """Kind (``markdown`` or ``code``) and text of each cell."""
    for markdown, text in CELL.findall(source):
        lines = (re.sub(r"^# ?", "", line) for line in text.splitlines()) if markdown else text.splitlines()
        yield markdown or "code", "\n".join(lines).strip()


def executed(file: Path) -> Any:
    """The notebook with what its cells give; CellExecutionError where one fails."""
    import nbformat.v4 as v4
    from nbclient import NotebookClient

    make = {"markdown": v4.new_markdown_cell, "code": v4.new_code_cell}
    notebook: Any = v4.new_notebook(cells=[make[kind](text) for kind, text in cells(file.read_text("utf-8"))])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return NotebookClient(notebook, timeout=60, kernel_name="python3", extra_arguments=["--log-level=ERROR"]).execute()


def write(folder: Path) -> list[str]:
    """All of them below `folder`, as pages and as files; the pages' paths."""
    import nbformat

    paths: list[str] = []
    (folder / "notebooks").mkdir(parents=True)
    for file in sorted(FOLDER.glob("*.py")):
        notebook = executed(file)
        nbformat.write(notebook, folder / "notebooks" / f"{file.stem}.ipynb")
        page = "\n".join([*_rendered(notebook, folder, file.stem), f"[Download this notebook]({file.stem}.ipynb)\n"])
        (folder / "notebooks" / f"{file.stem}.md").write_text(page, "utf-8")
        paths.append(f"notebooks/{file.stem}.md")
    titles = (
        next(text for kind, text in cells(f.read_text("utf-8")) if kind == "markdown")
        for f in sorted(FOLDER.glob("*.py"))
    )
    entries = [
        f"- [{t.splitlines()[0].strip('# ')}]({Path(p).name}): {' '.join(t.splitlines()[2:])}"
        for t, p in zip(titles, paths, strict=True)
    ]
    (folder / "notebooks" / "index.md").write_text(INDEX + "\n".join(entries) + "\n", "utf-8")
    return paths


def _rendered(notebook: Any, folder: Path, name: str) -> Iterator[str]:
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            yield f"{cell.source}\n"
            continue
        yield fenced(cell.source, "python")
        for place, output in enumerate(cell.outputs):
            yield _output(output, folder, f"{name}-{number}-{place}")


def _output(output: Any, folder: Path, name: str) -> str:
    if output.output_type == "stream":
        return fenced(re.sub(r"\x1b\[[0-9;]*m", "", output.text), "text")
    data = output.get("data", {})
    if "image/png" in data:
        picture = folder / "notebooks" / f"{name}.png"
        picture.write_bytes(base64.b64decode(data["image/png"]))
        return f"![what the cell shows]({name}.png)\n"
    return fenced(data.get("text/plain", ""), "text")
