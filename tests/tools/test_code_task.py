"""Programs in answers run in the real sandbox, with the tests of their row."""

from __future__ import annotations

import pytest

from orgthink.record.episode import Grade
from orgthink.tools.code_task import CODE

ROW = {"prompt": "def half(x):\n    '''x / 2'''", "test": "def check(f):\n    assert f(4) == 2", "entry_point": "half"}


@pytest.mark.parametrize(
    ("program", "right"),
    [
        ("def half(x):\n    return x / 2", True),
        ("def half(x):\n    return x", False),
        ("import os\nos._exit(0)", False),
        ("open('/etc/passwd').read()\ndef half(x):\n    return x / 2", False),
        ("while True:\n    print('x' * 10**6)", False),
    ],
)
def test_a_program_runs_in_the_sandbox(program, right):
    problem = CODE.problem(ROW["prompt"], ROW["test"], ROW)
    assert CODE.grade(problem, f"```python\n{program}\n```") == Grade(int(right), 1)
