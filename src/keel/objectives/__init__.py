"""One file per objective. Adding a file here adds an objective."""
