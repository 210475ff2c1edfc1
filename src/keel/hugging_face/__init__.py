"""The border to Hugging Face folders."""
