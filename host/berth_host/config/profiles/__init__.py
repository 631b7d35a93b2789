"""From decoded profiles to the plugins that run: defaults merged in, multiPoint expanded."""
