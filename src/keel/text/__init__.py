"""Reads files into documents, records and sentences. Independent of tokenizers."""
