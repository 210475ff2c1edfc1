"""`keel serve`: an HTTP server whose answers are those of `keel predict`, `embed` and `fill`, and its page."""
