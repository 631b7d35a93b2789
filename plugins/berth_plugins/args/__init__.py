"""Arguments of plugins, as the configuration gives them: checks, and feature gates."""
