"""A loaded model and how it answers."""
