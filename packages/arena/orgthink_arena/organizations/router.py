"""Router (section 4.4 of ParaManager): the model that solved the most similar known problems best gets the problem.

    question → the nearest problems of a bank → the member with the best mean score there → its answer

The bank is an evaluation of every member on training problems (`searches/router_bank.py`). Similarity is BM25
over the words of the questions; ParaManager embeds them, and does not say how. It also has one answer of the chosen
model; `samples` above 1 is the same router with a vote, for a comparison at equal units. With `oracle` the neighbours
are all problems of the same task, whose name no router of a user would know: an upper bound of routing by question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from pathlib import Path
from statistics import fmean

from orgthink.grammar.asyncthink import DIALECT, Dialect
from orgthink.organizations.prompts import prompt
from orgthink.organizations.votes import think_and_vote
from orgthink.record.episode import Problem
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tools.corpus import Corpus, Passage
from orgthink.util.errors import UserError, pick, require_at_least
from orgthink.util.settings import adapter
from orgthink.util.tabular import json_object


@dataclass(frozen=True, slots=True)
class Known:
    """A problem of the bank."""

    text: str
    """Its question."""
    task: str
    """Its task."""
    scores: dict[str, float]
    """Mean score of each member, 0 to 1."""
    tokens: dict[str, float]
    """Mean number of tokens that each member sampled."""


class Bank:
    """Known problems that are found by their words."""

    def __init__(self, problems: Sequence[Known]) -> None:
        self.problems = list(problems)
        self._by_text: dict[str, list[Known]] = {}
        for problem in self.problems:
            self._by_text.setdefault(problem.text, []).append(problem)
        self._corpus = Corpus([Passage("", text, 0.0) for text in self._by_text])

    async def nearest(self, text: str, count: int) -> list[Known]:
        """The `count` problems most like a text, the best first; all problems if none shares a word with it."""
        (found,) = await self._corpus.retrieve([text], count)
        near = [problem for passage in found for problem in self._by_text[passage.text]][:count]
        return near or self.problems


def best_member(members: Sequence[str], known: Sequence[Known]) -> str:
    """The member with the best mean score on these problems; of equals the one that samples fewest tokens there."""

    def rank(member: str) -> tuple[float, float]:
        return -fmean(one.scores[member] for one in known), fmean(one.tokens[member] for one in known)

    return min(members, key=rank)


@cache
def bank_of(file: str) -> Bank:
    """The bank of a file, read once in a process. UserError if the file is invalid."""
    try:
        found = adapter(list[Known]).validate_python(json_object(Path(file)).get("problems"))
        bank = Bank(found)  # half of a surrogate pair cannot be searched for
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file} is not a router's bank ({error}): `orgthink train` makes one, as router-bank"
        ) from error
    if not found:
        raise UserError(f"{file} is a router's bank without a problem: make a new one")
    for number, one in enumerate(found, 1):
        if not one.scores.keys() == one.tokens.keys() == found[0].scores.keys():
            raise UserError(f"{file}: problem {number} has other members than the first: make a new bank")
        if not all(map(isfinite, (*one.scores.values(), *one.tokens.values()))):
            raise UserError(f"{file}: problem {number} has a number that is not finite: make a new bank")
    return bank


@dataclass(frozen=True)
class Router(Organization):
    """The model that was best on similar problems answers alone."""

    prompts: str = "paper"
    """Prompt style."""
    dialect: Dialect = DIALECT
    """Spelling of the tags."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Members, each the name of an engine, with a description that is not read; none: the model of all."""
    bank: str | None = None
    """File that a `router-bank` job wrote; without it the first member gets every problem."""
    neighbours: int = 8
    """k: problems of the bank that count."""
    samples: int = 1
    """Answers of the chosen member; of several the most frequent wins."""
    oracle: bool = False
    """The neighbours are all problems of the bank that are of the same task."""
    name: str = "router"

    def __post_init__(self) -> None:
        require_at_least(1, self, "neighbours", "samples")

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self.pool) or ("thinker",)

    def identical_agents(self, capacity: int) -> dict[str, int]:
        """How many agents get the same prompt, by role."""
        return dict.fromkeys(self.roles, self.samples)

    async def run(self, problem: Problem, session: Session) -> str | None:
        member = self.roles[0] if self.bank is None else best_member(self.roles, await self._near(problem, self.bank))
        messages = prompt(self.prompts, "sequential", problem)
        return await think_and_vote(member, messages, self.samples, session, self.dialect)

    async def _near(self, problem: Problem, file: str) -> list[Known]:
        bank = bank_of(file)  # not before: a run can be looked at where its bank is gone
        for member in self.roles:
            pick("member of the bank", member, bank.problems[0].scores)
        if self.oracle:
            return [known for known in bank.problems if known.task == problem.task] or bank.problems
        return await bank.nearest(problem.text, self.neighbours)
