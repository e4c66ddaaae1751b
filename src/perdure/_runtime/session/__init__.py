"""A session: what callers see, its driver and its channel, its streams, slots and permissions."""
