"""Which host is which rank: the contention of an algorithm on a topology, and the order that has the least."""
