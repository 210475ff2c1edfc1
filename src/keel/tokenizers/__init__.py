"""Text to ids and back. Each kind of tokenizer is trained and applied by the same file."""
