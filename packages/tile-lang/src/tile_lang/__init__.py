"""The Tile language: parser, types, printers, formatter and reference evaluator."""
