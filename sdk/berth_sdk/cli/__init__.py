"""`berth-sdk`: serve plugins, and look at a server."""
