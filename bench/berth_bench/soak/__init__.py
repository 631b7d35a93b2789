"""`berth bench soak`: a host under load whose plugins are killed, hung, slowed, upgraded and made to lie."""
