"""A cluster in memory: the same ticks as in production, in another world."""
