"""The family tree: one YAML file per recipe, each told as its difference from its parent."""
