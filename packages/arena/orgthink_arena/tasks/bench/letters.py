r"""The letter that an answer to a multiple-choice question gives; none without one or with several.

    B     (B)     B.     **B**     \boxed{\text{B}}     The answer is (B).     Answer: B     Option B is correct.

The last `\boxed{}` counts; without one the last declaration; without one a line that is a letter only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution

LETTERS = "ABCDEFGHIJ"
"""Of the options, in their order."""
LONGEST = 100_000
"""Characters of an answer that are read, from its end."""

_MARKS = re.compile(r"[*`$]|\\(?:text|textbf|mathrm|mathbf)\b|\\[,;! ()\[\]]|(?<!\w)_+|_+(?!\w)")
_BOXED = re.compile(r"\\boxed\s*\{+([^{}]*)\}")
_LETTER = r"[({\[]?(?P<letter>[A-J])(?![\w'’])[)}\]]?"
_DECLARED = re.compile(
    rf"\b(?:answer|(?:correct|right|best)\s+(?:option|choice))(?:\s+is\b\s*:?|\s*[:=])\s*(?:option\s+)?{_LETTER}"
    rf"(?!\s+(?!because\b|since\b|as\b|and\b|or\b)[a-z])",
    re.IGNORECASE,
)
"""`The answer is B`, and not `The answer is a matter of taste`."""
_CONFIRMED = re.compile(rf"\b[Oo]ption\s+{_LETTER}\s+is\s+(?:the\s+)?(?:correct|right)\b")
_ALONE = re.compile(rf"{_LETTER}[.:)]?(?:\s|$)")
_LINE = re.compile(rf"{_LETTER}[.:)]?(?P<rest>\s.*|[.!]?)")
_SEVERAL = re.compile(r"[\s.,;)]*(?:(?:and|or|&|/)\s*|,\s*)(?:option\s+)?[(\[]?[A-J](?![\w'’])")
_SUPPOSED = re.compile(r"\b(?:if|suppose|supposing|assume|assuming|unless|whether)\b[^.!?\n]{0,40}$", re.IGNORECASE)
_WRONG = re.compile(r"\b(?:wrong|incorrect|not\s+(?:the|an?))\s+(?:\w+\s+)?$", re.IGNORECASE)


def letter_of(answer: str, options: Sequence[str]) -> str | None:
    """The letter that an answer gives, in upper case; `None` without one, with several, or with one of no option."""
    text = _MARKS.sub("", answer[-LONGEST:])
    if boxed := _BOXED.findall(text):
        found = _ALONE.match(f"{boxed[-1].strip()} ")
        letter = _single(boxed[-1].strip(), found)
    elif declared := _declarations(text):
        letter = _single(text, declared[-1])
    else:
        letters = {found for line in text.splitlines() if (found := _alone(line.strip(), options))}
        letter = letters.pop() if len(letters) == 1 else None
    return letter if letter is not None and letter in LETTERS[: len(options)] else None


def _alone(line: str, options: Sequence[str]) -> str | None:
    """The letter of a line that holds nothing else, except the text of its option."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    place, rest = LETTERS.index(found["letter"].upper()), found["rest"].strip(" .").casefold()
    quoted = place < len(options) and rest == options[place].strip(" .").casefold()
    return LETTERS[place] if quoted or not rest else None


def _declarations(text: str) -> list[re.Match[str]]:
    """Where the answer states a letter, in order; suppositions and wrong answers are left out."""
    found = [match for pattern in (_DECLARED, _CONFIRMED) for match in pattern.finditer(text)]
    meant = [
        match
        for match in found
        if not any(pattern.search(text[max(0, match.start() - 60) : match.start()]) for pattern in (_SUPPOSED, _WRONG))
    ]
    return sorted(meant, key=lambda match: match.start("letter"))


def _single(text: str, found: re.Match[str] | None) -> str | None:
    """The letter of a match, unless another letter follows it."""
    if found is None or _SEVERAL.match(text, found.end("letter")):
        return None
    return found["letter"].upper()


class LetterGrader:
    """Compares the letter of an answer with that of the right option; a text without one is wrong."""

    def grade(self, problem: Problem, answer: str) -> Grade:
        right = letter_of(answer, problem.data["options"]) == problem.data["answer"]
        return Grade(int(right), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        letter = letter_of(answer, problem.data["options"])
        return [Solution(letter, letter)] if letter else []


CHOICES = LetterGrader()
"""The grader of multiple choice."""
