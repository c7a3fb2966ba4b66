"""Data: from files and arrays to batches of views. Does not depend on methods or training."""
