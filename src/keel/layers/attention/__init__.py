"""Attention over flat batches."""
