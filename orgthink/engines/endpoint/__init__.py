"""A client of OpenAI-compatible servers."""
