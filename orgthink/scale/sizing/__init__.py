"""What a step of reinforcement learning takes on GPUs: memory, tokens, seconds, as formulas of public numbers.

In the order of reading: `configs` (a model's config.json), `shape` (its sizes), `hardware`, `setup` (how it is
trained), `work` (what a step asks for), `recipe` (both, of a recipe), `memory`, `seconds`, `plan` (whether it fits),
`sweep` (over numbers of GPUs).

Nothing here was measured on a GPU. Every docstring has its formula and what it assumes; docs/scale.md says which of
them were checked, and on what. Tokens and seconds are those of all GPUs together, memory is that of one.
"""
