"""How documents become rows: one packer per file, selected by `data.packing`."""
