"""Networks of many kinds beside ONNX Runtime, at several sizes of their open dimensions."""

from __future__ import annotations

import numpy as np
import pytest
import tile_onnx
from architectures import NETWORKS
from onnx_models import peer


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_this_kind(name: str) -> None:
    network = NETWORKS[name]
    proto = network.proto()
    made = tile_onnx.load(proto, "llvm")
    for feeds in network.feeds():
        found, wanted = made.run(feeds), peer(proto, feeds)
        assert list(found) == list(wanted)
        for output, value in wanted.items():
            assert (found[output].dtype, found[output].shape) == (value.dtype, value.shape), output
            scale = float(np.abs(value).max(initial=1e-30))
            np.testing.assert_allclose(found[output], value, rtol=1e-3, atol=1e-5 * scale, err_msg=output)
