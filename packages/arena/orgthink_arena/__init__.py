"""Other people's systems, their searches and trainings, public benchmarks, and comparisons at matched budgets."""
