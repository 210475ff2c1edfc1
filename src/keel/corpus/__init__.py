"""Tokenised documents on disk, and the order in which a run sees them. Knows no objective."""
