"""What a scheduler shows to the API server, recorded and compared: parts of `replay_observability`."""
