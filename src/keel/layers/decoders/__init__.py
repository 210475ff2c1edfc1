"""Decoders and beam search."""
