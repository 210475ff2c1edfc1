"""Contract tests for members of your own: `from keel.testing.contracts import check_backbone`."""
