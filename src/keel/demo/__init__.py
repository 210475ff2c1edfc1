"""`keel demo`: all steps, on text found on this machine."""
