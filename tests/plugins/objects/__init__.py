"""Records of objects that plugins read."""
