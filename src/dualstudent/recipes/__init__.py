"""Recipes: TOML files that define runs."""
