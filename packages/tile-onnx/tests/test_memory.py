"""How much memory a model takes, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

LAYERS, WIDTH = 12, 1000
CHILD = """
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import tile_onnx

def memory(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(what)).split()[1])

text = '<ir_version: 8, opset_import: ["" : 13]> main (float[7,8] x) => (float[7,8] y) { y = MatMul(x, w) }'
first = onnx.parser.parse_model(text)
first.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w"))
tile_onnx.load(first, "llvm").run({"x": np.ones((7, 8), np.float32)})  # what a first call takes in any case
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
model = tile_onnx.load(sys.argv[1], "llvm")
for _ in range(2):
    model.run({"x": np.ones((7, 1000), np.float32)})
print(memory("VmHWM") - before, memory("VmRSS") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="asks Linux for the peak")
def test_weights_are_in_memory_twice_at_most_and_then_once(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = [random.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
    nodes = [helper.make_node("MatMul", [f"v{k}" if k else "x", f"w{k}"], [f"v{k + 1}"]) for k in range(LAYERS)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (7, WIDTH)) for n in ("x", f"v{LAYERS}")]
    tensors = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], tensors)
    path = tmp_path / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )
    found = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True)
    peak, after = (int(n) / path.stat().st_size for n in found.stdout.split())
    assert peak < 2
    assert after < 1.5
