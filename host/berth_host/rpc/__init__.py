"""One relay to every plugin, in process or behind gRPC: calls, deadlines, validation, policy."""
