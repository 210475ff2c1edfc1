"""One file per kind of task. Adding a file here adds a task."""
