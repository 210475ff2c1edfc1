"""Packers turn documents into rows: one per file, selected by `data.packing`."""
