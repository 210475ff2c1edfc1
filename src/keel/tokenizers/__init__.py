"""Text to ids and back. Trained and applied by the same file."""
