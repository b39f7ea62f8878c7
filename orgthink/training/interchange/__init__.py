"""Rows for other trainers (`trainers`, `recorded`) and problems as verl's parquet files (`problems`). Imports no trainer."""
