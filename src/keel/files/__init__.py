"""Files and folders on disk: written whole, sealed, locked, and read with bounds."""
