"""Problems of one to four lettered parts that differ by nature and do not name their kind.

The parts come from a finite bank, so that answers of members can be stored. A part often has what another member takes
for its own: a name of the archive, two numbers, a line of code. The task `UNSEEN` adds dates, which no training has.
"""

from __future__ import annotations

import datetime
import random
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from itertools import product
from typing import NamedTuple

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Split, Task, in_split
from papers.outcomes import HERE

LETTERS = "ABCD"
FORM = r"Answer with the results in order, as in \boxed{17; yes}."
TEXT = (HERE / "paramanager.toml").read_text(encoding="utf-8")
DATA = tomllib.loads(TEXT)
_WORDS = {name: text.split() for name, text in DATA["words"].items()}
_OPPOSITES, _CAPITALS = (dict(pair.split("-") for pair in _WORDS[name]) for name in ("opposites", "capitals"))
_NAMES = [f"{first} {last}" for first, last in product(_WORDS["first"], _WORDS["last"])]


class Part(NamedTuple):
    """A question with its only answer."""

    kind: str
    text: str
    answer: str
    printed: tuple[str, str] | None = None
    """A line of Python in the text, and what it prints."""


@cache
def entries() -> dict[str, str]:
    """Titles of the archive's entries, by which they are found, and what is in them."""
    rng, found = random.Random("archive"), dict[str, str]()
    for name in _NAMES:
        found |= {f"{name} home town": rng.choice(_WORDS["towns"]), f"{name} trade": rng.choice(_WORDS["trades"])}
    for year, page in product(range(1901, 1921), range(3, 9)):
        found[f"register {year} page {page}"] = rng.choice(_NAMES)
    return found | {f"ship {country} harbour": rng.choice(_WORDS["towns"]) for country in _CAPITALS}


def _products(rng: random.Random) -> Iterator[Part]:
    for i in range(500):
        a, b, thing = rng.randint(12, 49), rng.randint(12, 49), rng.choice(_WORDS["things"])
        name = f"{rng.choice(_WORDS['first'])} {rng.choice(_WORDS['last'])}" if i % 2 else "A worker"
        yield Part("product", f"{name} fills {a} boxes with {b} {thing} each. How many {thing} is that?", str(a * b))


def _letters(rng: random.Random) -> Iterator[Part]:
    for word in _WORDS["long"]:
        for i, letter in enumerate(sorted({*word})):
            line = f"print('{word}')"
            text, printed = (f"`{line}`", (line, word)) if i % 2 else (f"'{word}'", None)
            question = f"How many times does the letter {letter} occur in {text}?"
            yield Part("letters", question, str(text.count(letter)), printed)


def _code(rng: random.Random) -> Iterator[Part]:
    for i in range(500):
        word, a, b = rng.choice(_WORDS["long"]), rng.randint(2, 30), rng.randint(31, 60)
        letter = rng.choice(word)
        line, printed = (
            (f"print('{word}'.index('{letter}'))", word.index(letter))
            if i % 2
            else (f"print(len(range({a}, {b}, 3)))", len(range(a, b, 3)))
        )
        yield Part("code", f"What comes out of `{line}`?", str(printed), (line, str(printed)))


def _lookups(rng: random.Random) -> Iterator[Part]:
    forms = {
        "home": "In which town is {0} {1} at home?",
        "trade": "What is the trade of {0} {1}?",
        "register": "Whose name is on page {3} of the {1} register?",
        "ship": "In which harbour is the ship {1}?",
    }
    for title, text in entries().items():
        form = next(form for word, form in forms.items() if word in title.split())
        yield Part("look-up", form.format(*title.split()), text)


def _language(rng: random.Random) -> Iterator[Part]:
    for word, other in (*_OPPOSITES.items(), *((b, a) for a, b in _OPPOSITES.items())):
        yield Part("language", f"What is the opposite of '{word}'?", other)
    for country, capital in _CAPITALS.items():
        yield Part("language", f"What is the capital of {country}?", capital)


def _dates(rng: random.Random) -> Iterator[Part]:
    for i in range(500):
        day = datetime.date(rng.randint(2001, 2040), 1, 1) + datetime.timedelta(rng.randrange(300))
        later, text = day + datetime.timedelta(rng.randint(8, 60)), "{0.day} {0:%B} {0.year}"
        if i % 2:
            yield Part("date", f"Which day of the week is {text.format(day)}?", f"{day:%A}")
        else:
            question = f"How many days are there from {text.format(day)} to {text.format(later)}?"
            yield Part("date", question, str((later - day).days))


KINDS = {"product": _products, "letters": _letters, "code": _code, "look-up": _lookups, "language": _language}
DATE = "date"
_SPLITS: tuple[Split, ...] = ("train", "test")


@cache
def bank(kind: str, split: Split) -> tuple[Part, ...]:
    """All parts of a kind in a split."""
    found = {part.text: part for part in (KINDS | {DATE: _dates})[kind](random.Random(kind))}
    return tuple(part for part in found.values() if in_split(part.text, split))


@cache
def parts() -> dict[str, Part]:
    """All parts by their texts."""
    return {part.text: part for kind in (*KINDS, DATE) for split in _SPLITS for part in bank(kind, split)}


@cache
def printed() -> dict[str, str]:
    """Line of Python → what it prints: the sandbox's answers, stored."""
    return dict(part.printed for part in parts().values() if part.printed)


def plain(value: str) -> str:
    """A value as it is compared."""
    return " ".join(value.strip(" .'\"\n").casefold().split())


class Mixed(Task):
    """Problems of these kinds of parts."""

    def __init__(self, name: str, kinds: tuple[str, ...]) -> None:
        self.name, self.kinds = f"papers.paramanager_problems:{name}", kinds

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        while True:
            yield self.problem(
                [rng.choice(bank(rng.choice(self.kinds), split)) for _ in range(rng.randint(1, 4))], split
            )

    def problem(self, parts: list[Part], split: Split) -> Problem:
        """The problem of some parts. Its id begins with their number."""
        text = "\n".join(f"{letter}) {part.text}" for letter, part in zip(LETTERS, parts, strict=False))
        name = f"{self.name}/{len(parts)}-{blake2b(text.encode(), digest_size=8).hexdigest()}"
        data = {"answers": [part.answer for part in parts], "split": split}
        return Problem(name, self.name, f"{text}\n{FORM}", data=data, answer_form=FORM)

    def grade(self, problem: Problem, answer: str) -> Grade:
        values = [plain(value) for value in re.split(r"[;\n]", answer)]
        right = [plain(one) for one in problem.data["answers"]]
        correct = sum(a == b for a, b in zip(values, right, strict=False)) if len(values) == len(right) else 0
        return Grade(correct, len(right))


class Bank(Task):
    """Each part alone, for a language model whose answers are stored."""

    name = "papers.paramanager_problems:BANK"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        return (Problem(f"{self.name}/{text}", self.name, text) for text in parts())

    def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(int(plain(answer) == plain(parts()[problem.text].answer)), 1)


BANK = Bank()
MIXED = Mixed("MIXED", tuple(KINDS))
UNSEEN = Mixed("UNSEEN", (*KINDS, DATE))
