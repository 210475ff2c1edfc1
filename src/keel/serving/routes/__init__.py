"""One file per dialect: Keel's own, text-embeddings-inference's, OpenAI's, Hugging Face's; the page and the runs."""
