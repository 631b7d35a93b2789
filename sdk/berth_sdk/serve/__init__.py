"""A process that serves plugins: its gRPC and framed servers, its copy of the state and its open cycles."""
