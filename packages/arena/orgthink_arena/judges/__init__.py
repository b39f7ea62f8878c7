"""Sandboxes that run a program on the inputs of its tests."""
