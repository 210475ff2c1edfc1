"""The training loop and its parts: optimizer groups, schedules, precision, checkpoints, progress."""
