"""A small task for Inspect, graded by orgthink's own grader."""
