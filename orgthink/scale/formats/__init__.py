"""Our rows in the formats of other trainers: pure functions of rows, which import none of them.

One module a target: `verl`, `trl`, `tinker`, `prime_rl`, `skyrl`, `slime`, `areal`. What a target cannot hold is
refused with one line that names the row, never dropped; `shared` has the check that every row passes.
"""
