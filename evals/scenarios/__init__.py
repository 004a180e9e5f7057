"""The scenarios that come with stackmem, one file each; see docs/scenarios.md."""
