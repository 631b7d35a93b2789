"""The kept answers of plugins, for pods with equal signatures, and the slots whose answers still hold."""
