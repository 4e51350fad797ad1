"""The HTML report: well-formed, self-contained, and drawn by a real browser."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from explain_support import CONV, CONV_SHAPES, CPU, GPU, MATMUL, SOFTMAX, compiled
from tile_ir.target import Target
from tile_opt.explain import explain_html

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def conv() -> str:
    return explain_html(compiled(CONV, CPU, "conv", **CONV_SHAPES))


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    ("source", "shapes"),
    [(CONV, CONV_SHAPES), (SOFTMAX, {"A": (8, 256)}), (MATMUL, {"A": (128, 64), "B": (64, 128)}), ("function (A) -> (B) { B = A; }", {"A": (7,)})],
    ids=["conv", "softmax", "matmul", "copy"],
)  # fmt: skip
def test_pages_are_well_formed_and_self_contained(
    source: str, shapes: dict[str, tuple[int, ...]], target: Target
) -> None:
    made = compiled(source, target, **shapes)
    text = explain_html(made)
    root = ElementTree.fromstring(text)
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", text.replace(source, ""))
    for element in root.iter():
        assert element.tag not in ("img", "iframe", "object", "embed") and "src" not in element.attrib
        assert element.get("href", "#").startswith("#") or element.tag == "link"
    # Without an icon of its own, even an empty one, browsers ask the server of a page for one.
    assert [link.attrib for link in root.iter("link")] == [{"rel": "icon", "href": "data:,"}]
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert ids == [f"k{n}" for n in range(len(made.kernels.kernels))]
    assert {e.get("href") for e in root.iter("a")} <= {f"#{i}" for i in ids}


def test_the_page_has_every_part(conv: str) -> None:
    for part in ("Roofline", "<svg", "Loop nest", "Flatten tables", "Semtree", "Stripe", "bind-grid", "bind-vector",
                 "prefers-color-scheme: dark", "register tile", "the cost model weighed", "Device buffers", "kernel_0"):  # fmt: skip
        assert part in conv, part


def test_source_lines_link_to_their_kernels(conv: str) -> None:
    root = ElementTree.fromstring(conv)
    lines = {e.findtext("i"): e.get("data-k") for e in root.iter("a") if e.find("i") is not None}
    assert set(lines) == {"2", "3"} and len(set(lines.values())) == 1
    target = root.find(f".//section[@id='k{lines['2']}']")
    assert target is not None and "R = (O > 0 ? O : 0)" in "".join(target.itertext())


def test_names_and_text_are_escaped() -> None:
    source = "// <script>alert(1)</script> & \x0c\nfunction (A) -> (B) { B = (A < 3 ? A : 0); }\n"
    text = explain_html(compiled(source, CPU, "a<b>&", A=(64,)))
    root = ElementTree.fromstring(text)
    assert text.count("<script>") == 1
    assert "<script>alert(1)</script>" in "".join(root.itertext())
    assert root.findtext("head/title") == "a<b>& on cpu"


def _pixels(path: Path) -> tuple[int, int, set[bytes]]:
    """Width, height and the set of row contents of a PNG, enough to see that something was drawn."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    packed, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        packed += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += 12 + length
    raw, stride = zlib.decompress(packed), 1 + width * {2: 3, 6: 4}[kind]
    return width, height, {raw[r * stride + 1 : (r + 1) * stride] for r in range(height)}


def _browse(tmp_path: Path, *arguments: str) -> str:
    assert BROWSER is not None
    base = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=20000",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    done = subprocess.run([*base, *arguments], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
def test_a_real_browser_draws_the_page_and_runs_its_script(conv: str, tmp_path: Path) -> None:
    page = tmp_path / "conv.html"
    # The probe reports what the browser made of the page: sizes of the parts, and highlights after a hover.
    probe = """<script>
      var line = document.querySelector(".src a"), section = document.querySelector("section[data-k='" + line.dataset.k + "']");
      line.dispatchEvent(new Event("mouseenter"));
      var lit = section.classList.contains("hot");
      line.dispatchEvent(new Event("mouseleave"));
      var drawn = [".plot .dot", ".box", ".box.bind-vector", ".src a", "table"].every(function (s) {
        var r = document.querySelector(s).getBoundingClientRect(); return r.width > 1 && r.height > 1; });
      document.title = ["probe", drawn, lit, section.classList.contains("hot"), performance.getEntriesByType("resource").length,
        document.documentElement.scrollWidth <= window.innerWidth].join(" ");
    </script></body>"""
    page.write_text(conv.replace("</body>", probe), encoding="utf-8")
    dumped = _browse(tmp_path, "--window-size=1200,900", "--dump-dom", page.as_uri())
    found = re.search(r"<title>(.*?)</title>", dumped)
    assert found is not None and found[1] == "probe true true false 0 true"
    picture = tmp_path / "conv.png"
    page.write_text(conv, encoding="utf-8")
    _browse(tmp_path, "--hide-scrollbars", "--window-size=1200,2400", f"--screenshot={picture}", page.as_uri())
    width, height, rows = _pixels(picture)
    assert (width, height) == (1200, 2400) and len(rows) > 300


def test_reductions_across_a_group_stand_where_they_happen() -> None:
    text = explain_html(compiled(SOFTMAX, GPU, A=(8, 256)))
    lines = re.findall(r'<div class="stmt">(.*?)</div>', text)
    first = lines.index("X_partial_all = max of X_partial over n_i")
    assert lines[first + 1] == "X = max(X, X_partial_all)"
