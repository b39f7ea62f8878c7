"""Preparations of baselines: searches and trainings whose result an organization takes as a setting."""
