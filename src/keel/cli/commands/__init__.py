"""One file per verb of `keel`, named after it; each ends with its `COMMAND`. There is no other list of verbs."""
