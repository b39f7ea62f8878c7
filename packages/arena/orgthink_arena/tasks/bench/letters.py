r"""The letter that an answer to a multiple-choice question gives; none where it gives several, or leaves it to a guess.

    B     (B)     B)     B. 10 eV     **B**     \boxed{\text{B}}     The answer is (B).     Answer: B

A letter that is a word, such as the article in "A good answer", is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution
from orgthink_arena.tasks.bench.declarations import confirmed_at, declared_at, imagined_at

LETTERS = "ABCDEFGHIJ"
"""Of the options, in their order."""
LONGEST = 100_000
"""Characters of an answer that are read, from its end."""
LINE = 400
"""Characters that are read behind a declaration."""

_SEVERAL = "?"
"""In place of a letter: an answer that takes it back, or gives more than one."""

_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|boldsymbol|mbox)\s*\{([^{}]*)\}")
_BOX = "\0"
"""Stands before what was boxed."""
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_MARKS = re.compile(r"[*`$\"“”]|\\[,;! ]|(?<!\w)_+|(?<!_)_+(?!\w)")
_BRACKETS = re.compile(r"\\([()\[\]])")
_OPTION = re.compile(r"(?:(?:option|choice|letter)\s+)?", re.IGNORECASE)
_TAKEN_BACK = re.compile(r"(?:not|neither|none|either)\b", re.IGNORECASE)
_REFUSED = re.compile(r"[\s.,;)]*(?:(?:is|was|were|would\s+be)\s+)(?:not|wrong|incorrect|false)\b", re.IGNORECASE)
"""Behind a letter that is not the answer."""
_LETTER = re.compile(
    r"(?P<open>[(\[{])?\s*(?P<letter>[A-Ja-j])(?![A-Za-z0-9'’])(?:\s*(?P<close>[)\]}]))?(?P<rest>[^\n]*)"
)
_ENDS = re.compile(r"[\s.!]*$")
_SEPARATED = re.compile(r"\s*\.(?:\s|$)")
_CONTINUED = re.compile(r"\s*(?:[.:;,!](?:\s|$)|[-–—=]\s)|\s+[-–—=(]\s?|\s+(?:because|since|as|due|given|is)\b")
"""What may follow a letter that is declared; an article is followed by a word."""
_ANOTHER = re.compile(
    r"(?:[\s.,;:)]*(?:(?:and|or|nor|&|/)[\s,;]*)+|(?:[\s.:)]*[,;])+\s*)"
    r"(?:either\s+|option\s+)?[(\[]?[A-J](?=\s*(?:$|[).,;:/\]&]|and\b|or\b|are\b))"
)
_LISTED = re.compile(r"[\s.:)\]]*[(\[]?[A-J](?:\s*[)\]]|[\s.]*$)|\s*\(\s*(?:and|or|nor)\s+[A-J]\b")
"""A second letter beside the first."""


def letter_of(answer: str, options: Sequence[str]) -> str | None:
    """The letter that an answer gives, in upper case; `None` without one, with several, or with one of no option.

    The last `\\boxed{}` counts; without one the last "the answer is …"; without that the last "the answer would be …"
    or "if …, the answer is …". Without any of them a line of its own does: the first or the last one. At last "… is the
    correct answer" does.
    """
    text = _plain(answer[-LONGEST:])
    found = (list(declared(text, options)) for declared in (_boxed, _declared, _imagined))
    letter = next((letters[-1] for letters in found if letters), "") or _of_lines(text, options)
    letter = letter or next(reversed(list(_confirmed(text, options))), "")
    return letter if letter in LETTERS[: len(options)] and letter else None


def _plain(answer: str) -> str:
    """Without Markdown and LaTeX around the letters; what is boxed has a line of its own."""
    text = _WORDS.sub(r"\1", answer.replace(_BOX, ""))
    lined = _BOXED.sub(lambda found: f"\n{_BOX}{' '.join(found[1].split())}\n", text)
    return _BRACKETS.sub(r"\1", _MARKS.sub("", lined))


def _boxed(text: str, options: Sequence[str]) -> Iterator[str]:
    """What is boxed and not taken back behind the box, in its order: letters, or `?`."""
    for found in re.finditer(rf"{_BOX}[^\S\n]*([^\n]*)", text):
        if not _REFUSED.match(text, found.end()):
            yield from _letter_at(text, found.start(1), options)


def _declared(text: str, options: Sequence[str]) -> Iterator[str]:
    """What the answer says to be the answer, in its order: letters, or `?`."""
    for place in declared_at(text):
        yield from _letter_at(text, place, options)


def _imagined(text: str, options: Sequence[str]) -> Iterator[str]:
    """What it says would be the answer, or is it under a condition."""
    for place in imagined_at(text):
        yield from _letter_at(text, place, options)


def _confirmed(text: str, options: Sequence[str]) -> Iterator[str]:
    """What it says to be correct."""
    for place in confirmed_at(text):
        yield from _letter_at(text, place, options)


def _letter_at(text: str, place: int, options: Sequence[str]) -> Iterator[str]:
    """The letter at a place where an answer stands, or `?`; nothing if it is no letter."""
    start = _OPTION.match(text, place)
    assert start is not None
    if _TAKEN_BACK.match(text, start.end()):
        yield _SEVERAL
    elif letter := _letter(text[start.end() : start.end() + LINE].partition("\n")[0], options, declared=True):
        yield letter


def _of_lines(text: str, options: Sequence[str]) -> str:
    """The letter of the first or the last line, if no line has another; empty without one."""
    found = [_letter(line.strip(), options, declared=False) for line in text.splitlines() if line.strip()]
    letters = {letter for letter in found if letter}
    return next(iter(letters)) if len(letters) == 1 and (found[0] or found[-1]) else ""


def _letter(text: str, options: Sequence[str], *, declared: bool) -> str:
    """The letter with which a text begins, `?` if it has another beside it; empty if it begins with something else."""
    found = _LETTER.match(text)
    if found is None:
        return ""
    letter, rest = found["letter"].upper(), found["rest"]
    place = LETTERS.index(letter)
    quoted = place < len(options) and rest.strip(" .:").casefold() == options[place].strip(" .").casefold()
    if not quoted and any(pattern.match(rest[:LINE]) for pattern in (_ANOTHER, _LISTED, _REFUSED)):
        return _SEVERAL
    upper, alone = found["letter"].isupper(), _ENDS.match(rest) is not None
    if found["close"] or alone:
        return letter if upper or found["open"] or alone else ""
    follows = (_CONTINUED if declared else _SEPARATED).match(rest)
    return letter if upper and (quoted or follows) else ""


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
