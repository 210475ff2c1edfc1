"""Tokenised documents on disk, and the order in which a run reads them. Knows nothing of objectives."""
