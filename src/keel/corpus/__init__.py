"""Tokenised documents on disk, and the order in which a run reads them. Independent of objectives."""
