"""Recurrent networks over flat batches."""
