"""The life of a connection to a plugin process: dial or launch, introduce, configure, keep, lose, restore."""
