"""`berth bench hostile`: the largest objects that an API server admits, and what they cost a scheduler."""
