"""`berth-sdk`: serve plugins, and inspect a server."""
