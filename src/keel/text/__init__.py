"""Files to documents, documents to sentences. Knows nothing of tokens."""
