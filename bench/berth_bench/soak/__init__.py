"""`berth bench soak`: run a host under load while its plugins are killed, hung, slowed, upgraded or wrong."""
