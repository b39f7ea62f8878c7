"""Rows of a recorded evaluation (`recorded`), and problems as parquet files for verl (`problems`)."""
