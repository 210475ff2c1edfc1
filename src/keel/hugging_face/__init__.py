"""Reads and writes Hugging Face model folders."""
