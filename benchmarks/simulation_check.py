"""The simulation of `orgthink.training.cluster.simulation` against measured runs of the local engine or, where it is installed, of
vLLM in this process.

`python -m benchmarks.simulation_check` fits the engine's model to independent completions, then runs organizations on
the shipped model, simulates the episodes that they recorded, and compares the wall clock. No run of an organization is
fitted. Calibration and organizations alternate, so that other load on the machine affects both.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tyro
from experiments.shared.conditions import hardware
from experiments.shared.readme import Column, fill, table
from orgthink.training.cluster.simulation.engine import EngineModel
from orgthink.training.cluster.simulation.recorded import recorded

from benchmarks.engine_fit import LOCAL, SLOTS, VLLM, Run, fitted, predicted
from benchmarks.report import Line
from orgthink.engines import MODELS
from orgthink.engines.engine import Engine
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.vllm import VllmEngine
from orgthink.evaluate.evaluation import OrganizationSpec
from orgthink.grammar.actions import Event
from orgthink.grammar.asyncthink import AsyncThinkScanner
from orgthink.record.episode import Message, Problem, Sampling
from orgthink.record.provenance import commit
from orgthink.runtime import Backing, Limits, Session, attempt
from orgthink.tasks import task_named
from orgthink.util.files import write_whole
from orgthink.util.threads import set_threads

PAGE = Path(__file__).parent.parent / "docs" / "cost_at_scale.md"

MODEL, TASK = "pocket-async", "countdown-mini"
CAPACITY, TOKENS = 4, 192
SETTINGS = {"sequential": {}, "parallel": {}, "asyncthink": {"malformed": "error"}}
"""The organizations and their settings, as the model was trained."""
ON_VLLM = importlib.util.find_spec("vllm") is not None
ENGINE, KNOWN = ("vLLM", VLLM) if ON_VLLM else ("local", LOCAL)
AT_ONCE = (1, 16, 64)
"""Episodes that run at once."""

INJECTED = 10
"""Tokens that are injected between two requests of a completion."""
STAGGER = 11
"""Largest difference of the lengths of such requests, in tokens, so that they do not end together."""


class Case(NamedTuple):
    """Independent completions of one length, all at once."""

    requests: int
    """Number of completions."""
    prompt: int
    """Tokens of a prompt."""
    tokens: int
    """Tokens of each request."""
    times: int = 1
    """How often this is done, one after the other."""
    turns: int = 1
    """Requests of each completion, one after the other."""


CASES = (
    Case(1, 10, 4, times=16),
    Case(1, 10, 192, times=4),
    Case(1, 320, 32, times=4),
    Case(4, 10, 192, times=2),
    Case(4, 320, 32, times=2),
    Case(8, 10, 128),
    Case(16, 10, 24, times=2),
    Case(16, 10, 192),
    Case(16, 320, 64),
    Case(32, 10, 128),
    Case(64, 10, 24),
    Case(64, 10, 192),
    Case(64, 80, 64),
    Case(128, 10, 96),
    Case(1, 10, 8, turns=12, times=2),
    Case(3, 10, 8, turns=12, times=2),
    Case(16, 10, 8, turns=12),
    Case(64, 10, 8, turns=12),
)
"""The prompts of the organizations have 9 to 13 tokens, and a join injects 2 to 37."""


@dataclass(frozen=True)
class Completion:
    """One agent that decodes to its limit, several times. AsyncThink's grammar reads its text, as in organizations."""

    prompt: str
    turns: int
    name: str = "completion"
    roles: tuple[str, ...] = ("completion",)

    async def run(self, problem: Problem, session: Session) -> None:
        agent = session.agent("completion", (Message("user", self.prompt),))
        for turn in range(self.turns):
            if turn:
                agent.inject(" 7" * INJECTED)
                agent.resume()
            async for _ in agent.act(_Ignored()):
                pass


class _Ignored:
    """The grammar of organizers, of which nothing is done."""

    stops: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    quoted = False

    def __init__(self) -> None:
        self._scanner = AsyncThinkScanner("fork", "join", "answer")

    def feed(self, text: str) -> list[Event]:
        self._scanner.feed(text)
        return []

    def close(self) -> list[Event]:
        return []

    def mark(self) -> object:
        return self._scanner.mark()

    def rewind(self, mark: Any) -> None:
        self._scanner.rewind(mark)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Simulated and measured runs of an organization."""

    organization: str
    """Its name."""
    at_once: int
    """Episodes at once."""
    agents: int
    """Agents of a run."""
    measured: float
    """Seconds of the fastest run."""
    ratio: float
    """Simulated ÷ measured seconds of that run."""
    low: float
    """The smallest ratio of all runs."""
    high: float
    """The largest ratio of all runs."""


async def opened(folder: Path) -> Engine:
    return await VllmEngine.open(folder, max_num_seqs=SLOTS) if ON_VLLM else LocalEngine.open(folder, slots=SLOTS)


async def completions(folder: Path, case: Case) -> Run:
    """Run independent completions on a new engine."""
    engine = await opened(folder)
    later = [STAGGER * i // case.requests if case.turns > 1 else 0 for i in range(case.requests)]
    backings = [Backing(engine, Sampling(case.tokens + n, seed=0)) for n in later]
    waves, seconds = [], 0.0
    for i in range(case.times):
        drawn = [random.Random(i * case.requests + n) for n in range(case.requests)]
        texts = [" ".join(str(rng.randrange(1, 10)) for _ in range(case.prompt)) for rng in drawn]
        start = time.perf_counter()
        episodes = await asyncio.gather(
            *(
                attempt(Completion(text, case.turns), Problem(text, "", ""), backing)
                for text, backing in zip(texts, backings, strict=True)
            )
        )
        seconds += time.perf_counter() - start
        waves.append([recorded(episode) for episode in episodes])
    await engine.aclose()
    return Run(waves, seconds)


async def organized(name: str, at_once: int, problems: Sequence[Problem]) -> Run:
    """Run episodes of an organization on a new engine: all at once, or one after the other."""
    engine = await opened(Path(MODELS[MODEL]))
    organization = OrganizationSpec(name, {"prompts": "pocket", **SETTINGS[name]}).named(name)
    backing, limits = Backing(engine, Sampling(TOKENS, seed=0)), Limits(CAPACITY, agent_tokens=TOKENS)
    waves, seconds = [], 0.0
    for first in range(0, len(problems), at_once):
        start = time.perf_counter()
        episodes = await asyncio.gather(
            *(attempt(organization, problem, backing, limits=limits) for problem in problems[first : first + at_once])
        )
        seconds += time.perf_counter() - start
        waves.append([recorded(episode) for episode in episodes])
    await engine.aclose()
    return Run(waves, seconds)


def measure(rounds: int) -> tuple[list[list[Run]], dict[tuple[str, int], list[Run]]]:
    """Runs of all cases in each round, and runs of each organization, by its name and the episodes at once."""
    problems = list(itertools.islice(task_named(TASK).problems("test", 0), 128))
    calibration: list[list[Run]] = []
    organizations: dict[tuple[str, int], list[Run]] = {}
    with tempfile.TemporaryDirectory() as name:
        endless = _endless(Path(name) / MODEL)
        asyncio.run(completions(endless, Case(8, 10, 32)))  # warm up
        for _ in range(rounds):
            calibration.append([asyncio.run(completions(endless, case)) for case in CASES])
            for organization, at_once in itertools.product(SETTINGS, AT_ONCE):
                run = asyncio.run(organized(organization, at_once, problems[: max(16, at_once)]))
                organizations.setdefault((organization, at_once), []).append(run)
    return calibration, organizations


def _endless(folder: Path) -> Path:
    """The model without a token that ends a text, so that every text has the requested length."""
    shutil.copytree(MODELS[MODEL], folder)
    for file in (folder / "config.json", folder / "generation_config.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": None}))
    return folder


def compare(model: EngineModel, measured: dict[tuple[str, int], list[Run]]) -> Iterator[Comparison]:
    for (name, at_once), runs in measured.items():
        fastest, ratios = _fastest(runs), [predicted(model, run) / run.seconds for run in runs]
        agents = sum(1 for wave in fastest.waves for program in wave for agent in program if agent.prompt)
        ratio = predicted(model, fastest) / fastest.seconds
        yield Comparison(name, at_once, agents, fastest.seconds, ratio, min(ratios), max(ratios))


def _fastest(runs: Sequence[Run]) -> Run:
    """The run that other load on the machine disturbed least."""
    return min(runs, key=lambda run: run.seconds)


COLUMNS: tuple[Column, ...] = (
    ("organization", lambda row: row["organization"]),
    ("episodes at once", lambda row: f"{row['at_once']}"),
    ("agents", lambda row: f"{row['agents']}"),
    ("measured, s", lambda row: f"{row['measured']:.2f}"),
    ("simulated ÷ measured", lambda row: f"{row['ratio']:.2f}"),
    ("of all runs", lambda row: f"{row['low']:.2f} to {row['high']:.2f}"),
)


def block(model: EngineModel, errors: Sequence[float], found: Sequence[Comparison], rounds: int) -> str:
    """The comparison and its conditions, for docs/cost_at_scale.md."""
    machine, few, many = hardware(), model.memory, model.compute
    bend = round(-many.base / (many.row - few.row)) if many.row > few.row else 0
    fit = (
        f"Fitted in µs: a step {1e6 * model.fixed:.0f}, and for each row {1e6 * few.row:.0f} (beyond {bend} rows "
        f"{1e6 * many.row:.0f}), for each token of context {1e6 * few.context:.2f}, for each token read "
        f"{1e6 * few.read:.0f}, for a step that reads {1e6 * model.prefill:.0f}, for each request "
        f"{1e6 * model.request:.0f}; between two requests {1e6 * model.turnaround:.0f}. Fitted ÷ measured on the "
        f"{len(errors)} kinds of completions: {min(errors):.2f} to {max(errors):.2f}."
    )
    conditions = (
        f"Conditions: {ENGINE}, {machine['cpu']}, {machine['cores']} cores, one thread beside the event loop; "
        f"model `{MODEL}`, task `{TASK}`, {CAPACITY} agents, {TOKENS} tokens, {SLOTS} slots, seed 0; fastest of "
        f"{rounds} runs; commit {commit()}. `python -m benchmarks.simulation_check --rounds {rounds} --write`."
    )
    return "\n\n".join((table([asdict(each) for each in found], COLUMNS), fit, conditions))


def run(rounds: int = 3) -> list[Line]:
    """The comparisons as rows of `make bench`."""
    calibration, organizations = measure(rounds)
    model = fitted([_fastest(runs) for runs in zip(*calibration, strict=True)], KNOWN)
    load = f"{MODEL}, {TASK}, {CAPACITY} agents, {TOKENS} tokens, {SLOTS} slots; fastest of {rounds} runs"
    return [
        Line(
            f"simulated ÷ measured seconds on {ENGINE}, {each.organization}, {each.at_once} episodes at once",
            each.ratio,
            "0.9 to 1.1",
            0.9 <= each.ratio <= 1.1,
            f"{load}; of all runs {each.low:.2f} to {each.high:.2f}",
        )
        for each in compare(model, organizations)
    ]


def main(rounds: int = 4, write: bool = False) -> None:
    """Measure, fit, compare and print. `write` puts the comparison into docs/cost_at_scale.md."""
    set_threads(spare=1)
    calibration, organizations = measure(rounds)
    alone = [_fastest(runs) for runs in zip(*calibration, strict=True)]
    model = fitted(alone, KNOWN)
    errors = [predicted(model, run) / run.seconds for run in alone]
    for case, run, error in zip(CASES, alone, errors, strict=True):
        print(f"{case}: {run.seconds:.4f} s, fitted ÷ measured {error:.2f}")
    text = block(model, errors, list(compare(model, organizations)), rounds)
    print(f"\n{text}")
    if write:
        write_whole(PAGE, fill(PAGE.read_text(), {"check-vllm" if ON_VLLM else "check": text}).encode())


if __name__ == "__main__":
    tyro.cli(main)
