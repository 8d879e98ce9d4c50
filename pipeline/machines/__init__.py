"""Speaker machines: the shared pool and its kernel, training, and margins of a whole population."""
