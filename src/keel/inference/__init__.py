"""Loaded models: filling masks, encoding, prediction, generation, translation."""
