"""The corpus as a pretraining run reads it."""
