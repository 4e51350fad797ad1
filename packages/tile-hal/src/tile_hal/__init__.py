"""The Tile hardware abstraction layer: interfaces, plugin discovery, built-in devices, conformance suite."""
