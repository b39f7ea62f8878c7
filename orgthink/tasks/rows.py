"""Problems from tables with the columns that people have: a question and an answer in each row, and a grader by name.

Subclasses of `RowTask` are the graders. Which one a file needs is guessed from its first rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from orgthink.grammar.solution import final_result
from orgthink.record.episode import Grade, Problem
from orgthink.tasks.math_guard import extract, literal
from orgthink.tasks.task import FileTask, Solution, Split, placed, require_shallow
from orgthink.util.errors import UserError, explained

QUESTIONS = ("problem", "question", "prompt", "text", "input")
TESTS = ("test_list", "test")
"""Columns with the tests of a program, which are its answer."""
ANSWERS = ("answer", "target", "expected_answer", "final_answer", "solution", "answerkey", *TESTS)
"""Names of columns in public data sets, the preferred ones first; capitals do not matter."""
OTHERS = ("choices", "options", "entry_point", "test_setup_code", "test_imports")
"""Columns with the options of a multiple-choice question, or with the function and the imports of the tests."""

SEEN = 100
"""Rows from which the grader is guessed."""
LONGEST = 100
"""Characters of an answer that a result can be expected to equal."""
LETTERS = "ABCDEFGHIJ"
"""Options of a multiple-choice question."""
_TEXT = re.compile(r"\\(?:text(?:bf)?|math(?:rm|bf))\{([^{}]*)\}")
_MARKS = re.compile(r"\\(?:text(?:bf)?|math(?:rm|bf))|[*`$_{}]")
_LETTER = re.compile(
    r"(?:[Oo]ption |[Cc]hoice )?[(\[]?(?P<letter>[A-Ja-j])[)\].:]*(?:\\?\s(?:[-–—] )?(?P<option>.*))?", re.DOTALL
)
_DECLARED = re.compile(
    r"(?:^|[.!?;:,\n])(?P<before>[^.!?;:,\n]*?)\b(?:[Aa]nswer|[Oo]ption|[Cc]hoice)(?: is| should be| must be|:)"
    r"(?: therefore| thus)?[\s:]*(?:[Oo]ption )?\(?(?P<letter>[A-J])\b(?!\)?\s*(?:,|/|and|or)\s*\(?[A-J]\b)"
    r"(?!'| (?!because|since|as)[a-z])"
)
"""`The answer is B`, and neither `B or C` nor `a matter of taste`."""
_DENIED = re.compile(
    r"\b(?:not|never|if|unless|whether|neither|nor|wrong|incorrect|false|suppose|assume|may|might|doubt)\b|n't"
)
"""Words before `answer` in the clause, after which it is not declared."""
_FOUND = re.compile(
    r"(?:^|[.!?;,\n]) *(?:(?:[Tt]hus|[Ss]o|[Tt]herefore|[Hh]ence),? *)?(?:[Oo]ption |[Cc]hoice )?\(?([A-J])\)? is"
    r" (?:the )?(?:correct|right|best)(?: answer| option| choice)?(?=[.!\n]|,? (?:because|since|as)\b|$)"
    r"|\b(?:[Tt]hus|[Ss]o|[Tt]herefore|[Hh]ence),? \(?([A-J])\)?\.?$"
)
"""`B is correct`, and `Thus, B` at the end."""


class RowTask(FileTask):
    """Problems of rows. Grading needs no file, because the problem contains its answer."""

    form = ""
    """How the answer is written: a paragraph below the question."""
    needs = "answer"
    """Entry of the data that the grader needs."""
    columns = (*QUESTIONS, *ANSWERS, *OTHERS)

    def read(self, row: Any, place: str) -> Problem:
        with explained(place, ValueError, UserError):
            question, answer = columns_of(row)
            return require_shallow(self.problem(text_of(row[question]), row[answer], row), place)

    def problem(self, text: str, answer: Any, row: Mapping[str, Any] | None = None) -> Problem:
        """The problem of a question and its answer. ValueError if no answer to it could be graded."""
        question, data = self.parts(text, answer, row or {})
        return Problem(
            id=f"{self.name.partition('=')[0]}/{hashlib.sha256(question.encode('utf-8', 'replace')).hexdigest()[:12]}",
            task=self.name,
            text="\n\n".join(filter(None, (question, self.form))),
            data=data,
            answer_form=self.form,
        )

    def parts(self, text: str, answer: Any, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The question, and the data that the grader needs: the answer, or what follows `####` in it, as in GSM8K."""
        written = text_of(answer)
        return text, {"answer": written.rpartition("####")[2].strip() or written}

    def fits(self, data: Mapping[str, Any]) -> bool:
        return bool(text_of(data.get(self.needs)))

    def taken(self, split: Split) -> str:
        question, answer = columns_of(next(placed(self._files[split][0], self.columns))[1])
        count = f"{len(self.rows_of(split)):,} problems"
        return f'{count} from column "{question}", answers from "{answer}", grader {self.name}'


class Exact(RowTask):
    """`exact:FILE`: the result is the text of the row's answer."""

    name = "exact"
    form = "Put your final answer, and nothing else, in \\boxed{}."

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer, or its result, is the text of `data["answer"]`, ignoring white space at the ends, else 0."""
        right = text_of(problem.data.get("answer"))
        return Grade(int(bool(right) and right in (answer.strip(), _result(answer))), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return super().solutions(problem, _result(answer))


class Contains(RowTask):
    """`contains:FILE`: the text of the row's answer occurs, ignoring case. Lists of guesses pass, too."""

    name = "contains"

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the answer has the right text between ends of words, else 0."""
        right = text_of(problem.data.get("answer"))
        found = right and re.search(rf"(?<!\w){re.escape(right)}(?!\w)", answer, re.IGNORECASE)
        return Grade(int(bool(found)), problem.required)


class Choice(RowTask):
    """`choice:FILE`: the letter of the right option. Another result, such as two letters, is wrong."""

    name = "choice"
    form = "Put the letter of the right option alone in \\boxed{}."

    def parts(self, text: str, answer: Any, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The question with its options. ValueError for an answer that is neither the number, from 0, nor the letter,
        nor the text of one option."""
        options = row.get(first(OTHERS[:2], row) or "", [])
        options = json.loads(options) if isinstance(options, str) else options  # a CSV file
        options = [*map(text_of, options["text"] if isinstance(options, Mapping) else options)]  # `text` is ARC's
        names, given = options or [*LETTERS], text_of(answer)
        places = {i for i, both in enumerate(zip(LETTERS, names, strict=False)) if given in both}
        places = {answer} if isinstance(answer, int) else places
        if len(places) != 1 or not places <= {*range(len(names))} or len(names) > len(LETTERS):
            raise ValueError(f"its answer {given[:40]!r} is not one of its options, of which there are {len(names)}")
        lines = [f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=False)]
        return "\n".join([text, *lines]), {"answer": LETTERS[places.pop()], "options": options}

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the result is the letter of the right option, else 0."""
        given = [solution.identity for solution in self.solutions(problem, answer)]
        return Grade(int(given == [problem.data.get("answer")]), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        """The letter of the result, which its option may follow; without a marked result the last declared letter."""
        result = final_result(answer)
        options = dict[str, str](zip(LETTERS, problem.data.get("options", ()), strict=False))
        letter = _letter(result, options) or (_declared(result, options) if result == answer.strip() else "")
        return super().solutions(problem, letter if letter in (options or LETTERS) else "")


EXACT, CONTAINS, CHOICE = Exact(), Contains(), Choice()


def _letter(text: str, options: Mapping[str, str]) -> str:
    """The letter that is the whole text, but for the text of its option; empty for another text."""
    found = _LETTER.fullmatch(_MARKS.sub("", text).strip(" .\n"))
    letter = found["letter"].upper() if found else ""
    return (
        letter
        if found and (found["option"] or "").strip() in ("", _MARKS.sub("", options.get(letter, "")).strip(" ."))
        else ""
    )


def _declared(answer: str, options: Mapping[str, str]) -> str:
    """The letter of the last line, `The answer is B` or `B is correct`; empty if two are declared in the same way."""
    before, _, last = (text := _MARKS.sub("", answer).strip()).rpartition("\n")
    if (letter := _letter(last, options)) and not _LETTER.fullmatch(before.rstrip().rpartition("\n")[2].strip()):
        return letter  # and not the last option of a list
    declared = [found["letter"] for found in _DECLARED.finditer(text) if not _DENIED.search(found["before"])]
    found = {one or other for one, other in _FOUND.findall(text)}
    return declared[-1] if declared else found.pop() if len(found) == 1 else ""


def _result(answer: str) -> str:
    """The final result as text, without `\\text{}` and Markdown."""
    return _TEXT.sub(r"\1", final_result(answer)).strip("*_` ")


def columns_of(row: Any) -> tuple[str, str]:
    """The columns of a row that hold its question and its answer. UserError without one of them."""
    if not isinstance(row, Mapping):
        raise UserError("not an object with a question and an answer")
    return recognise(name for name, value in row.items() if text_of(value))


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


def text_of(value: Any) -> str:
    """The text of a value, numbers in plain digits: `0.00001` of 1e-05. Lists are JSON; other values have no text."""
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f") if isfinite(value) else ""
    if isinstance(value, list) and value:
        return json.dumps(value, default=str)
    return str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""


def guessed(file: Path) -> str:
    """The grader that the first rows of a file ask for. UserError if no result could equal their answers."""
    rows = [row for _, row in islice(placed(file, RowTask.columns), SEEN) if isinstance(row, Mapping)]
    with explained(f"{file}, row 1", UserError):
        _, column = columns_of(rows[0] if rows else {})
    answers = [text for row in rows if (text := text_of(row.get(column)))]
    if first(OTHERS[:2], rows[0]) or {*answers} <= {*LETTERS}:
        return "choice"
    if first(("test_list", "entry_point"), rows[0]) or column in TESTS:
        return "code"
    marked = (re.search(r"\\[a-z]|\$|####", answer) or literal(extract(answer)) is not None for answer in answers)
    if 2 * sum(map(bool, marked)) >= len(answers):  # LaTeX, GSM8K's mark of a number, or a number
        return "math"
    if 2 * sum(len(answer) > LONGEST for answer in answers) > len(answers):
        raise UserError(f"{file}: its answers are long: choose --grader judge=MODEL@URL, contains or exact")
    return "exact"
