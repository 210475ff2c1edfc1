"""Metrics: pure functions of gold answers and predictions, in numpy."""
