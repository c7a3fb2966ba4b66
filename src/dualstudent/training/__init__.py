"""Training: from a recipe to a run. Knows methods, but not which."""
