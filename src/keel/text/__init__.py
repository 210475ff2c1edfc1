"""Reads files into documents, records and sentences. Knows nothing of tokens."""
