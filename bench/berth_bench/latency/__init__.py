"""How soon pods have their nodes while pods come and go at a steady rate, on a real API server."""
