"""What the host counts and measures. A leaf: everybody may write here, nobody is asked from here."""
