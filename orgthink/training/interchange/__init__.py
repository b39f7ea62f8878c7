"""Rows for other trainers (`trainers`, `recorded`), and problems as parquet files for verl (`problems`)."""
