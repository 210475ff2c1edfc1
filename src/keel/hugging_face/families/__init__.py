"""Published families: config keys and tensor names, one table each."""
