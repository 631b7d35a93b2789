"""The way back: what a plugin may ask of the host, in process and through HandleService."""
