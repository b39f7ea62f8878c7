"""Estimates of a training step on GPUs: memory, tokens and seconds, as formulas of public numbers.

Order of reading: `configs` (a model's config.json), `shape` (its sizes), `hardware`, `setup` (how it is trained),
`work` (sequences and tokens of a step), `recipe` and `rollouts` (both, of a recipe), `memory`, `seconds`, `plan`
(whether it fits), `sweep` (over numbers of GPUs), `command` (`orgthink size`).

Every docstring has the formula and its assumptions. docs/scale.md lists the checks, and docs/gpu.md two numbers that
were compared with a GPU. Tokens and seconds are totals of all GPUs, memory is per GPU.
"""
