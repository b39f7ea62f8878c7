"""Recipes: named training configurations."""
