"""What embedders and searches cost on this machine, and what they find: `stackmem bench`."""
