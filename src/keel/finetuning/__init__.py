"""Labelled data as a fine-tuning run reads it."""
