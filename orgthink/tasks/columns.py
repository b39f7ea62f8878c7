"""Which columns of a table hold the questions and the answers."""

from __future__ import annotations

from collections.abc import Iterable

from orgthink.util.errors import UserError

QUESTIONS = ("problem", "question", "prompt", "text", "input")
TESTS = ("test_list", "test")
"""Columns with the tests of a program, which are its answer."""
ANSWERS = ("answer", "target", "expected_answer", "final_answer", "solution", "answerkey", *TESTS)
"""Names of columns in public data sets, the preferred ones first; capitals do not matter."""
OTHERS = ("choices", "options", "entry_point", "test_setup_code", "test_imports")
"""Columns with the options of a multiple-choice question, or with the function and the imports of the tests."""


def recognise(columns: Iterable[str]) -> tuple[str, str]:
    """The column of the questions and that of the answers, spelled as in the table. UserError without one of them."""
    names = list(columns)
    question, answer = first(QUESTIONS, names), first(ANSWERS, names)
    if question is None or answer is None:
        wanted = ", ".join((ANSWERS if question else QUESTIONS)[:3])
        has = f"the row has {', '.join(map(str, names))[:80]}" if names else "the row is empty"
        raise UserError(f"no column with the {'answer' if question else 'question'} ({wanted}): {has}")
    return question, answer


def first(wanted: Iterable[str], columns: Iterable[str]) -> str | None:
    """The first wanted column that is there, spelled as in the table; `None` without one."""
    known = {str(name).strip().lower(): name for name in columns}
    return next((known[name] for name in wanted if name in known), None)
