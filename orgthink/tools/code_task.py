"""Programs that must pass the tests of a row, such as those of HumanEval and MBPP, run in the sandbox."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from orgthink.grammar.solution import in_fences
from orgthink.record.episode import Grade, Problem, Status
from orgthink.tasks.rows import TESTS, RowTask, first
from orgthink.tools.bubblewrap import SandboxLimits
from orgthink.tools.python import CodeRunner, unindented
from orgthink.tools.sandbox import runner_named
from orgthink.util.registry import require_trust
from orgthink.util.threads import waited


class Code(RowTask):
    """`code:FILE`: the last program of the answer passes the tests of the row.

    Tests and program share a process. A program that ends it early fails, but one that is written to deceive its tests
    can pass: this grader measures, and is no reward for training.
    """

    name, needs = "code", "tests"
    form = "Write the whole program in Python, in a fenced block (```python). The last such block counts."

    def parts(self, text: str, answer: Any, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The question, and the code before and after the program. ValueError without tests, UserError without a
        sandbox."""
        runner()
        tests = _text(row.get(first(TESTS, row) or ""))
        if not tests:
            raise ValueError(f"it has no tests of a program: a column {' or '.join(TESTS)}")
        if entry := row.get("entry_point"):  # the question is the beginning of a program
            return text, {"before": f"{text}\n    pass", "tests": f"{tests}\ncheck({entry})"}
        before = _text(row.get("test_setup_code") or row.get("test_imports") or "")
        return f"{text}\n\nThe program must pass these tests:\n\n{tests}", {"before": before, "tests": tests}

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the program passes all tests, else 0. ToolError if the sandbox fails."""
        lines = answer.splitlines(keepends=True)
        parts = groupby(zip(in_fences(lines), lines, strict=True), itemgetter(0))
        *_, source = "", *("".join(line for _, line in [*part][1:-1]) for fenced, part in parts if fenced)
        if not source.strip():
            return Grade(0, problem.required)
        require_trust(f"the program in an answer to {problem.id}")
        end = secrets.token_hex()
        program = f"{problem.data['before']}\n{unindented(source)}\nimport sys\nexec(sys.stdin.read())"
        result = waited(runner().run(program, f"{problem.data['tests']}\nprint('\\n{end}')"))
        return Grade(int(result.status is Status.OK and result.text.rstrip().endswith(end)), problem.required)


def _text(code: Any) -> str:
    """Code in a column: a text, or a list of lines or statements."""
    return "\n".join(map(str, code)) if isinstance(code, list) else str(code or "")


@cache
def runner() -> CodeRunner:
    """The sandbox of programs in answers."""
    return runner_named("bubblewrap", SandboxLimits(seconds=10))


CODE = Code()
"""`code:FILE`, and the grader of rows with tests."""
