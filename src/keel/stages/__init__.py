"""One short file per command: the only place where the other rooms meet."""
