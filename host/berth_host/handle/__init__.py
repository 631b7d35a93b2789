"""The way back: the calls that a plugin may make to the host, in process and through HandleService."""
