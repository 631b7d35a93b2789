"""`berth bench soak`: a host under load whose plugins are killed, hung, slowed, replaced and made to lie."""
