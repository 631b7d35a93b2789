"""NUMA zones of nodes, as NodeResourceTopology objects have them, and what pods need of them."""
