"""Speaker machines: the shared pool and its kernel, training, and the margins of a whole population."""
