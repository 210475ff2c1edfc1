"""Reports: one self-contained HTML page per run, with curves as inline SVG."""
