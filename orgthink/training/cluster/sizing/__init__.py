"""Estimates of a training step on GPUs: memory, tokens and seconds, as formulas of public numbers.

Order of reading: `model` (a model's config.json and its sizes), `step` (hardware, training setup, sequences and tokens
of a step), `recipe` (both, of a recipe), `plan` (memory, seconds, and whether it fits).

Every docstring has the formula and its assumptions. docs/gpu_facts.md has the numbers that were compared with a GPU.
Tokens and seconds are totals of all GPUs, memory is per GPU.
"""
