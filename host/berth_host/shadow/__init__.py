"""A host that decides beside the real scheduler and writes nothing (`berth scheduler --shadow`)."""
