"""A plug-in in one file: everything that orgthink takes by name. tests/test_plugins.py installs it as a package, and
names it as a file."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from orgthink.credit import EpisodeCredit
from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.organizations.prompts import Style, prompt
from orgthink.record.episode import Episode, Grade, Origin, Problem, Sampling
from orgthink.record.folder import RunFolder
from orgthink.rewards import EpisodeReward, Score
from orgthink.runtime import Limits, Organization, Session
from orgthink.tasks.task import Solution, Split
from orgthink.training.recipes.jobs import Policy
from orgthink.training.rl_settings import RlSettings
from orgthink.training.rollout import Rollout


@dataclass(frozen=True)
class Shaker(Organization):
    """One agent says something, and that is the answer."""

    prompts: str = "paper"
    """Prompt style."""
    shout: bool = False
    """Whether the answer is in capitals."""
    name: str = "shaker"

    roles = ("shaker",)
    measures: ClassVar = {"answer_length": lambda episode: len(episode.answer or "")}

    async def run(self, problem: Problem, session: Session) -> str | None:
        agent = session.agent("shaker", prompt(self.prompts, "sequential", problem))
        answer = (await agent.complete()).strip()
        return answer.upper() if self.shout else answer


class Dice:
    """Problems that ask for a number of pips."""

    name = "dice"

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        for i in count(seed):
            yield Problem(f"dice-{split}-{i}", "dice", f"Throw {i % 6 + 1}.", data={"answer": str(i % 6 + 1)})

    def grade(self, problem: Problem, answer: str) -> Grade:
        return Grade(int(problem.data["answer"] in answer), 1)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        return [Solution(answer, answer)]


def any_answer(problem: Problem, answer: str) -> Grade:
    """A grader that takes everything."""
    return Grade(1, 1)


@dataclass(frozen=True, slots=True)
class Variety(EpisodeReward):
    """Pays for different characters in the answer."""

    weight: float = 1.0
    """Of each."""

    watched: ClassVar = {"characters": "characters {:.0f}"}

    def __call__(self, episode: Episode) -> Score:
        characters = len(set(episode.answer or ""))
        return VarietyScore(self.weight * characters, characters)


@dataclass(frozen=True, slots=True)
class VarietyScore(Score):
    characters: int

    def parts(self) -> dict[str, float]:
        return {"characters": self.characters}


@dataclass(frozen=True, slots=True)
class Ranks(EpisodeCredit):
    """The better half of a group gets the same advantage, the other half that below zero."""

    size: float = 1.0
    """Of an advantage."""

    def __call__(self, groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        found = {}
        for rewards in groups.values():
            ranked = sorted(rewards, key=rewards.__getitem__)
            found |= {name: self.size * (1 if 2 * i >= len(ranked) else -1) for i, name in enumerate(ranked)}
        return found


async def throw(sides: int) -> str:
    """Throws a die.

    Args:
        sides: How many it has.
    """
    return f"it shows {sides}"


STYLE = Style("dice", {"sequential": "{question} Say it with dots."})


class Canned(Engine):
    """Calls the tool `throw` if the prompt names it, and else says the same to everything."""

    def __init__(self, says: str) -> None:
        self.model, self.says = "canned", says

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        calls = [{"name": "throw", "arguments": {"sides": 6}}, {"name": "final_answer", "arguments": {}}]
        said = sum(span.origin is Origin.SAMPLED for span in context.spans)
        says = f"<ANSWER>{self.says}</ANSWER>" if said else self.says
        if '"throw"' in context.text and said < len(calls):
            says = f"<tool_call>\n{json.dumps(calls[said])}\n</tool_call>\n"
        yield Chunk((says,), finish=FinishReason.EOS)


async def canned(rest: str, *, threaded: bool = True) -> Canned:
    """`canned:TEXT` says the text."""
    return Canned(rest)


RECIPE = Policy(
    RlSettings(
        Rollout("countdown", OrganizationSpec("sequential"), Limits(1), max_tokens=8, problems=2, group=4),
        steps=1,
        learning_rate=1e-3,
        warmup=0,
        reward=Variety(),
        credit=Ranks(),
    )
)
"""A recipe whose reward and credit are of this file."""


class Pips:
    """A tracker: the names of the numbers of each step, in a text file."""

    def __init__(self, folder: RunFolder, id: str) -> None:
        self._file = folder.path / "pips.txt"

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        with self._file.open("a") as file:
            file.write(f"{step}: {', '.join(numbers)}\n")

    def finish(self) -> None:
        pass
