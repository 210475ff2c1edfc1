"""Contract tests for your own members: `from keel.testing.contracts import check_backbone`."""
