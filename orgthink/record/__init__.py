"""The record: episodes, their JSON, and the run folder in which they are stored."""
