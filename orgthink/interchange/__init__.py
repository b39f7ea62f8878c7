"""Rows for other trainers, and problems from them: pure functions, which import none of the trainers.

Rows: one module a trainer (`verl`, `trl`, `tinker`). What a trainer cannot hold is refused with one line that names the
row, never dropped; `shared` has the check that every row passes. Problems: `problems` writes verl's parquet files,
`verl_data` reads them.
"""
