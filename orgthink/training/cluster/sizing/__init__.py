"""Estimates of a training step on GPUs: memory and seconds, as formulas of public numbers.

Every docstring has the formula and its assumptions. docs/gpu_facts.md has the numbers that were compared with a GPU.
Tokens and seconds are totals of all GPUs, memory is per GPU.
"""
