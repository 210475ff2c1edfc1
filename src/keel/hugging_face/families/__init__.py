"""Published model families: config keys and tensor names, one file each."""
