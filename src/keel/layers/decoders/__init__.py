"""Decoders and the search for their best output."""
