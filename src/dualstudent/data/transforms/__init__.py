"""Transforms that perturb views."""
