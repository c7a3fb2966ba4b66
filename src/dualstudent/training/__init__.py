"""Training, evaluation and inference; independent of the method."""
