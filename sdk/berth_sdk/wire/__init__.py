"""Records <-> the contract's messages, and how these travel; for the server and the host alike."""
