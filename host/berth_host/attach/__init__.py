"""The life of served plugins: found or launched, handshake, configured, watched, lost, attached again.

`routes` chooses the instance that gets the calls if a plugin has several.
"""
