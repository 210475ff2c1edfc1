"""One file per model. Adding a file here adds a backbone."""
