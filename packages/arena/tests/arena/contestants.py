"""Models, organizations and a preparation for tests of arenas, named by the path of this file as yours could be."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interruption import request
from orgthink_arena.searches.costs import Costs, read, write
from rule_engine import RuleEngine
from small import TASK_OF_SUMS
from terse import TERSE

from orgthink.engines.engine import Chunk, Context
from orgthink.grammar.solution import read_proposal
from orgthink.record.episode import Message, Problem, Sampling
from orgthink.record.folder import RunFolder
from orgthink.runtime import Agent, Organization, Session

HERE = str(Path(__file__).resolve())


class Adder(RuleEngine):
    """Adds what it is asked for; the seed decides how long it thinks, and whether it is wrong."""

    def __init__(self, skill: float) -> None:
        super().__init__(lambda text: "", model=f"adder {skill}")
        self._skill = skill

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        request()
        rng = random.Random(f"{sampling.seed} {context.text}")
        a, b = map(int, re.findall(r"(\d+) \+ (\d+)", context.text)[0])
        answer = a + b + (rng.random() >= self._skill)
        self._rule = lambda text: f"{'hm ' * rng.randrange(1 + int(25 * self._skill))}<ANSWER> {answer} </ANSWER>"
        async for chunk in super().stream(context, sampling):
            yield chunk


async def adder(rest: str, *, threaded: bool = True) -> Adder:
    """`adder:0.7` is right in seven of ten."""
    return Adder(float(rest))


@dataclass(frozen=True)
class Asking(Organization):
    """Several agents are asked at once, and so on for some rounds: greedy for every budget."""

    prompts: str = TERSE
    width: int = 3
    rounds: int = 4
    memory: str = ""
    """A file that a preparation made."""
    name: str = "asking"

    roles = ("thinker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        root, answer = session.controller(), None
        with session.until_spent(root):
            for r in range(self.rounds):
                for i in range(self.width):
                    agent = session.agent("thinker", (Message("user", f"{r} {i} {problem.text}"),))
                    session.fork(root, f"{r}.{i}", agent, Agent.complete)
                for i in range(self.width):
                    found = await session.join(root, f"{r}.{i}")
                    answer = read_proposal(found.text, ended=True).answer or answer
        return answer


@dataclass(frozen=True)
class Faulty(Organization):
    """Has a bug."""

    prompts: str = TERSE
    name: str = "faulty"

    roles = ("thinker",)

    async def run(self, problem: Problem, session: Session) -> str | None:
        raise RuntimeError("a bug of somebody's")


@dataclass(frozen=True)
class GuessSettings:
    """Settings of a search that finds nothing."""

    steps: int = 2
    seed: int = 0
    fails: bool = False
    report_every: int = 1


@dataclass(frozen=True)
class Guess:
    """A search: it writes its seed, a step at a time."""

    settings: GuessSettings = GuessSettings()
    model: str | None = None
    device: str = "cpu"

    def require(self) -> None:
        pass

    def run(self, folder: RunFolder, report: Callable[[dict[str, Any]], None]) -> Path:
        if self.settings.fails:
            raise RuntimeError("nothing to be found")
        file = folder.path / "memory.json"
        found = json.loads(file.read_text()) if file.exists() else []
        while len(found) < self.settings.steps:
            found.append(self.settings.seed)
            folder.write_json("memory.json", found)
            write(folder.path, read(folder.path).plus(Costs(1, 100 * (1 + self.settings.seed), 2, 2.0, 0.0)))
            report({"step": len(found)})
        return folder.path


GUESS = Guess()


def arena_file(folder: Path, **changes: Any) -> Path:
    """An arena of four methods and a search, with changes at the top; tables that are given replace whole ones."""
    settings: dict[str, Any] = {
        "task": TASK_OF_SUMS,
        "n": 4,
        "seeds": [0, 1],
        "reference": "asking",
        "capacity": 4,
        "max_tokens": 30,
        "prompts": TERSE,
        "development": {"task": f"{TASK_OF_SUMS}@0/2", "n": 3},
        "pool": {"good": {"model": f"{HERE}:adder:0.8"}, "poor": {"model": f"{HERE}:adder:0.3"}},
        "preparations": {"guess": {"recipe": f"{HERE}:GUESS"}},
        "methods": {
            "asking": {"organization": f"{HERE}:Asking", "prepared": {"memory": "guess/memory.json"}},
            "wide": {"organization": f"{HERE}:Asking", "model": "poor", "settings": {"rounds": 20}},
            "base": {"organization": "sequential", "group": "one", "grid": {"model": ["poor", "good"]}},
            "vote": {"organization": "majority-vote", "group": "one", "grid": {"samples": [2, 6]}},
        },
    }
    file = folder / "arena.toml"
    file.write_text(toml({**settings, **changes}))
    return file


def toml(table: dict[str, Any], path: str = "") -> str:
    """TOML of nested tables."""
    own = [f"{json.dumps(name)} = {written(value)}" for name, value in table.items() if not isinstance(value, dict)]
    below = [
        f"[{path}{json.dumps(name)}]\n{toml(value, f'{path}{json.dumps(name)}.')}"
        for name, value in table.items()
        if isinstance(value, dict)
    ]
    return "\n".join([*own, *below]) + "\n"


def written(value: Any) -> str:
    """A value in TOML, which has other names than JSON for what is no finite number."""
    return json.dumps(value).replace("Infinity", "inf").replace("NaN", "nan")
