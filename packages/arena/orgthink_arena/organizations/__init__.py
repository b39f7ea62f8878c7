"""Organizations of other papers: baselines."""
