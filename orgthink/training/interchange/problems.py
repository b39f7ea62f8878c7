"""Problems as rows of the parquet files that verl reads (columns of verl 0.9.1).

`orgthink.tasks.verl_data` reads them.

Every field of a problem has a column, so the problem can be rebuilt exactly, from the file or from what verl passes to
an agent loop.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orgthink.record.episode import Message, Problem
from orgthink.tasks.task import Split
from orgthink.tasks.verl_data import OURS
from orgthink.util.errors import UserError
from orgthink.util.files import write_whole
from orgthink.util.settings import plain
from orgthink.util.tabular import parquet_bytes


def row_of(problem: Problem, split: Split, index: int) -> dict[str, Any]:
    """The row of problem number `index` of a file. UserError if its data are not JSON values."""
    try:
        truth = json.dumps(problem.data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"problem {problem.id}: its data are not JSON values: {error}") from error
    if json.loads(truth) != problem.data:
        raise UserError(f"problem {problem.id}: its data are not JSON values: use lists, and texts as keys")
    return {
        "data_source": OURS + problem.task,
        "prompt": [plain(turn) for turn in (*problem.history, Message("user", problem.text))],
        "ability": problem.task,
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {
            "split": split,
            "index": index,
            "id": problem.id,
            "required": problem.required,
            "instruction": problem.instruction,
            "answer_form": problem.answer_form,
            "history": len(problem.history),
        },
    }


def write(problems: Sequence[Problem], split: Split, file: Path) -> None:
    """Write problems as a parquet file for verl. UserError if there are not, or if one cannot be written."""
    if not problems:
        raise UserError(f"no problems to write to {file}")
    write_whole(file, parquet_bytes([row_of(problem, split, index) for index, problem in enumerate(problems)], file))
