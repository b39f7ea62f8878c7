"""Rows for TRL and Tinker (`trainers`, `recorded`), and problems as parquet files for verl (`problems`)."""
