"""The records of attempts, and the explanations made from them for messages and `berth why`."""
