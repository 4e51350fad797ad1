"""`tile explain`."""

from __future__ import annotations

from tile_runtime.cli.common import Device, File, Json, Shapes, lowered, print_json, read_function


def explain(
    file: File,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    json: Json = False,
) -> None:
    """Say what each kernel does, how it was tiled, what it costs, and where compile time went."""
    low = lowered(read_function(file), shape, device)
    if not json:
        print(low.explain())
        return
    kernels = [
        {"name": k.name, "groups": list(k.groups), "operations": k.flops, "bytes": k.bytes, "tile": k.stripe.comment}
        for k in low.kernels.kernels
    ]
    print_json({"device": low.device.id, "kernels": kernels, "steps": len(low.kernels.steps), "arenas": list(low.kernels.arenas), "seconds": dict(low.compiled.timings)})  # fmt: skip
