"""The traces of a scheduler at the API server, recorded and compared: parts of `replay_observability`."""
