"""Data: from published files to batches of two views. Knows nothing of learning."""
