"""The members of the experiment with ParaManager, which differ by nature: programs, a sandbox, a search engine and a
language model. `Managers` calls them by ids that change from problem to problem; `Workflow` asks them in a fixed order.
Slow members answer from tables: what a line of Python prints, and what a language model said to each part of the bank.
"""

from __future__ import annotations

import datetime
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from orgthink.organizations.paramanager import ParaManager
from orgthink.organizations.prompts import Style, read_templates
from orgthink.record.episode import Problem
from orgthink.runtime.agent import Agent
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tools.corpus import Corpus, Passage
from orgthink.tools.schema import Parameters
from orgthink.tools.tool import Desk, Tool
from orgthink.util.errors import ToolError
from papers.paramanager_problems import DATA, DATE, KINDS, LETTERS, TEXT, Part, entries, parts, printed

IDS = tuple(f"m{i}" for i in range(1, 9))
DESCRIPTIONS: Mapping[str, list[str]] = DATA["members"]
"""Member → its descriptions: three for training, and others for held-out problems."""
CALENDAR = "calendar"
TRAINED = tuple(name for name in DESCRIPTIONS if name != CALENDAR)
RIGHT = dict(zip((*KINDS, DATE), DESCRIPTIONS, strict=True))
"""Kind of a part → the member for it."""
KNOWN = 0.5
"""Share of the parts of general knowledge that a language model is assumed to know where no table is given: of 15 that
were tried SmolLM2 knew 7."""

STYLE = Style("mixed", read_templates(TEXT))


def calculator(text: str) -> str | None:
    """The product of two numbers, or the sum of others."""
    numbers = [int(one) for one in re.findall(r"\d+", text)]
    if len(numbers) < 2:
        return None
    return str(numbers[0] * numbers[1] if " each" in text else sum(numbers))


def speller(text: str) -> str | None:
    """How often a letter occurs in what is quoted."""
    quoted = re.search(r"`(.+)`", text) or re.search(r"('.+')", text)
    letter = re.search(r"letter (\w)\b|'(\w)'", text)
    return str(quoted[1].count(letter[1] or letter[2])) if quoted and letter else None


def sandbox(text: str) -> str | None:
    """What the line of Python in a text prints."""
    line = re.search(r"`(.+)`", text)
    return printed().get(line[1]) if line else None


def calendar(text: str) -> str | None:
    """The day of the week of a date, or the days between two."""
    days = [datetime.datetime.strptime(one, "%d %B %Y") for one in re.findall(r"\d+ [A-Z][a-z]+ \d{4}", text)]
    if len(days) == 2:
        return str((days[1] - days[0]).days)
    return f"{days[0]:%A}" if days else None


PROGRAMS: Mapping[str, Callable[[str], str | None]] = {
    one.__name__: one for one in (calculator, speller, sandbox, calendar)
}


@cache
def _corpus() -> Corpus:
    return Corpus([Passage(title, entry, 0.0) for title, entry in entries().items()])


@cache
def _table(file: str) -> dict[str, str]:
    return json.loads(Path(file).read_text()) if file else {text: assumed(part) for text, part in parts().items()}


def assumed(part: Part) -> str:
    """What a language model is assumed to say."""
    return part.answer if part.kind == "language" and random.Random(part.text).random() < KNOWN else "I do not know"


async def result_of(member: str, text: str, table: str) -> str:
    """The result of a member for a question. ToolError if it sees nothing to do; else it may be wrong."""
    if member == "archive":
        found = next((one.text for one in (await _corpus().retrieve([text], 1))[0]), None)
    else:
        found = PROGRAMS.get(member, _table(table).get)(text)
    if found is None:
        raise ToolError("nothing to do")
    return found


def questions(problem: Problem) -> dict[str, str]:
    """Letter → question."""
    return dict(line.split(") ", 1) for line in problem.statement.splitlines())


@dataclass(frozen=True, slots=True)
class Member:
    """A member as a tool, by its id."""

    name: str
    table: str
    description: str = "Answers one question."
    cost: float = 1.0
    parameters: Parameters = field(
        default_factory=partial(
            Parameters.from_schema,
            {"type": "object", "properties": {"subtask": {"enum": list(LETTERS)}}, "required": ["subtask"]},
        )
    )

    def agent(self, arguments: Mapping[str, Any], desk: Desk) -> Agent:
        return desk.session.code(self.name)

    async def work(self, agent: Agent, arguments: Mapping[str, Any], desk: Desk) -> str:
        member, text = desk.models.get(self.name), questions(desk.problem).get(arguments["subtask"])
        if member is None or text is None:
            raise ToolError("there is no such question" if member else "there is no such member")
        return await result_of(member.partition("/")[0], text, self.table)


@dataclass(frozen=True)
class Managers(ParaManager):
    """ParaManager over these members. Their ids and descriptions change from problem to problem."""

    prompts: str = "papers.paramanager_members:STYLE"
    members: tuple[str, ...] = TRAINED
    """Members of the team."""
    table: str = ""
    """File with the answers of the language model; without one they are assumed."""
    tools: tuple[str, ...] = ()
    rounds: int = 4
    reserve: float = 0.0
    echo: bool = True
    pool: Mapping[str, str] = field(
        default_factory=lambda: {
            f"{name}/{i}": text for name, each in DESCRIPTIONS.items() for i, text in enumerate(each)
        }
    )
    """Member and number of the description → description."""
    name: str = "managers"

    roles = ("manager",)

    def toolbox(self, models: tuple[str, ...]) -> dict[str, Tool]:
        return {name: Member(name, self.table) for name in IDS}

    def known(self, problem: Problem) -> dict[str, str]:
        rng, places = random.Random(problem.id), range(3, 5) if problem.data.get("split") == "test" else range(3)
        ids = rng.sample(IDS, len(self.members))
        return {name: f"{member}/{rng.choice(places)}" for name, member in zip(ids, self.members, strict=True)}


@dataclass(frozen=True)
class Workflow(Organization):
    """Asks the members in a fixed order, for all parts at once, and takes the first result that did not fail. It does
    not see the kind of a part. With one member it is that member alone."""

    order: tuple[str, ...] = TRAINED
    table: str = ""
    """File with the answers of the language model; without one they are assumed."""
    name: str = "workflow"

    async def run(self, problem: Problem, session: Session) -> str | None:
        root, left, found = session.controller(), questions(problem), dict[str, str]()
        letters = list(left)
        for member in self.order:
            for letter, text in left.items():

                async def work(agent: Agent, member: str = member, text: str = text) -> str:
                    return await result_of(member, text, self.table)

                session.fork(root, letter, session.code(member), work)
            found |= {letter: (await session.join(root, letter)).text for letter in left}
            left = {letter: text for letter, text in left.items() if not found[letter]}
        return "; ".join(found.get(letter) or "?" for letter in letters)
