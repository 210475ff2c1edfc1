"""Comparisons of several models on the same data, in one report."""
