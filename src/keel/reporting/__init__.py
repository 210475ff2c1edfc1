"""Pages people read: curves as inline SVG, and one self-contained HTML report per run."""
