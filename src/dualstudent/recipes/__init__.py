"""Recipes: TOML files that define runs."""

from dualstudent.recipes.reading import load_recipe, recipe_names
from dualstudent.recipes.schema import Recipe

__all__ = ["Recipe", "load_recipe", "recipe_names"]
