"""The whole line on text found on this machine."""
