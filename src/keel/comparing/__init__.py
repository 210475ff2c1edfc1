"""Several models, the same data, one report."""
