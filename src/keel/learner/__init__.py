"""A backbone and its objectives as one module, and how an encoder serves a task."""
