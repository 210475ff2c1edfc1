"""One YAML file per recipe; each contains only what differs from its parent."""
