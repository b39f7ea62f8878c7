"""The arena: organizations side by side at matched budgets, from one file of settings to one table."""
