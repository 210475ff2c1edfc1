"""The one loop, and what it needs: optimizer groups, schedules, precision, progress."""
