"""Rows for other trainers, and problems from them. These are pure functions that import none of the trainers.

Rows: one module a trainer (`verl`, `trl`, `tinker`). A row that a trainer cannot hold is refused with one line that
names it, never dropped; `shared` has the checks that every row passes.

Problems: `problems` writes verl's parquet files, `verl_data` reads them.
"""
