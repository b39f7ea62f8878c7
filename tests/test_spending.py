"""Bounds on what a run costs: where it ends, and that it goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rule_engine import Rule, RuleEngine, countdown
from small import TASK
from terse import TERSE

import orgthink.engines
from orgthink.cli import main
from orgthink.engines import EngineSpec
from orgthink.engines.engine import Chunk, Context, EngineError
from orgthink.evaluation.run import Spending
from orgthink.record.episode import Episode, Grade, Origin, Problem, Sampling, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.runtime.clock import run_virtual
from orgthink.tasks import task_named

EMPTY = Episode("p|a|0", Problem("p", "t", ""), "a", 2, (Trace("a", "a", None, (), model="m"),))


def of(tokens: int) -> Episode:
    return replace(EMPTY, traces=(Trace("a", "a", None, (Span(Origin.SAMPLED, "", tokens),), model="m"),))


def conducted(costs: list[int], most: int, concurrency: int, before: list[int]) -> list[int]:
    """Costs of the episodes that ran, each of which takes as many seconds."""
    spending = Spending(None, most, {}, map(of, before))
    ran: list[int] = []

    async def worker(jobs: list[int]) -> None:
        while jobs:
            cost = jobs.pop(0)
            if not await spending.admits():
                return
            ran.append(cost)
            await asyncio.sleep(cost)
            await spending.ended(of(cost))

    async def work() -> None:
        jobs = list(costs)
        await asyncio.gather(*(worker(jobs) for _ in range(concurrency)))

    run_virtual(work())
    if len(ran) < len(costs):
        assert spending.reached is not None
    return ran


@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 300), st.integers(1, 12))
def test_episodes_that_cost_the_same_end_at_the_bound(cost: int, n: int, most: int, concurrency: int) -> None:
    """But for the first, of which nobody knows what they cost: as many begin as run at once."""
    ran = conducted([cost] * n, most, concurrency, [])
    assert len(ran) == min(n, max(min(concurrency, n), most // cost))


@given(st.lists(st.integers(1, 20), max_size=30), st.integers(1, 200), st.integers(1, 8), st.lists(st.integers(1, 20)))
@example(costs=[5] * 9, most=10, concurrency=4, before=[10])
def test_nothing_begins_beyond_the_bound(costs: list[int], most: int, concurrency: int, before: list[int]) -> None:
    ran = conducted(costs, most, concurrency, before)
    spent = sum(before) + sum(ran)
    if sum(before) >= most:
        assert ran == []
    if before and ran:  # then the mean is known: what begins fits by it, and those that run cost at most 20 each
        assert spent - most <= 20 * min(concurrency, len(ran))
    if len(ran) < len(costs):
        mean = spent / (len(before) + len(ran))
        assert spent + mean > most, "it stopped too early"


def test_who_waits_when_the_run_is_stopped_does_not_begin() -> None:
    spending, stop, begun = Spending(None, 60, {}, [of(20)]), asyncio.Event(), list[float]()

    async def one() -> None:
        if await spending.admits(stop):
            begun.append(asyncio.get_running_loop().time())
            await asyncio.sleep(2)
            await spending.ended(of(1))

    async def work() -> None:
        async with asyncio.timeout(100):
            running = asyncio.gather(*(one() for _ in range(20)))
            await asyncio.sleep(1)
            stop.set()
            await running

    run_virtual(work())
    assert begun == [0, 0]


# The command.

PRICES = '["rule"]\ninput = 1\noutput = 1_000_000\n'
"""A dollar for each word."""


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], RuleEngine]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / "prices.toml").write_text(PRICES)

    def use(rule: Rule, kind: type[RuleEngine] = RuleEngine) -> RuleEngine:
        engine = kind(rule)

        async def open_engine(spec: EngineSpec) -> RuleEngine:
            return engine

        monkeypatch.setattr(orgthink.engines, "open_engine", open_engine)
        return engine

    use(countdown)
    return use


EVAL = ["eval", "--url", "http://server", "--model", "rule", "--task", TASK, "--prompts", TERSE, "--n", "6"]
EVAL += ["--organizations", "sequential", "--concurrency", "1", "--max-tokens", "64", "--out", "run"]
WORDS = len(countdown("thinker Numbers: 1, 2, 3").split())
"""Of each answer."""


def ended() -> int:
    return len(list(RunFolder.open(Path("run")).episodes()))


@pytest.mark.parametrize(
    ("bound", "more"),
    [
        (["--max-total-tokens", f"{2 * WORDS}"], ["--max-total-tokens", f"{5 * WORDS}"]),
        (["--prices", "prices.toml", "--max-dollars", f"{2 * WORDS + 1}"], ["--max-dollars", f"{5 * WORDS + 1}"]),
    ],
)
def test_a_run_stops_at_its_bound_and_goes_on_with_a_higher_one(
    use: Callable[[Rule], RuleEngine], capsys: pytest.CaptureFixture[str], bound: list[str], more: list[str]
) -> None:
    assert main([*EVAL, *bound]) == 3
    assert ended() == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"stopped after 2 of 6 episodes: {2 * WORDS}" in last
    assert f"go on with: orgthink eval --resume run {bound[-2]} MORE" in last
    assert main(["eval", "--resume", "run"]) == 3, "the folder remembers its bound"
    assert ended() == 2
    assert main(["eval", "--resume", "run", *more]) == 3
    assert ended() == 5
    capsys.readouterr()
    assert main(["eval", "--resume", "run"]) == 3
    assert f"of {bound[-2]} {bound[-1]} are spent" in capsys.readouterr().err, "the new one was for one time"
    assert main(["eval", "--resume", "run", more[-2], "1000"]) == 0
    assert ended() == 6


def test_a_run_goes_on_with_its_own_prices(use: Callable[..., RuleEngine], capsys) -> None:
    assert main([*EVAL, "--prices", "prices.toml", "--max-dollars", f"{2 * WORDS + 1}"]) == 3
    capsys.readouterr()
    assert main(["eval", "--resume", "run", "--prices", "prices.toml"]) == 2
    assert "--resume takes everything else from the folder" in capsys.readouterr().err
    assert main(["eval", "--resume", "run", "--max-dollars", "1000"]) == 0


class Breaking(RuleEngine):
    """Says five words, then fails."""

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        for _ in range(5):
            yield Chunk((" word",))
        raise EngineError("gone")


def test_what_failed_was_paid_for(use: Callable[..., RuleEngine]) -> None:
    use(countdown, Breaking)
    assert main(EVAL) == 1
    use(countdown)
    assert main(["eval", "--resume", "run", "--max-total-tokens", "30"]) == 3
    assert len(list(RunFolder.open(Path("run")).failed())) == 6
    assert ended() == 0
    use(countdown, Breaking)
    assert main(["eval", "--resume", "run", "--max-total-tokens", "1000"]) == 1
    use(countdown)
    assert main(["eval", "--resume", "run", "--max-total-tokens", f"{60 + 2 * WORDS}"]) == 3
    assert 0 < ended() < 6, "an episode that failed twice was paid for twice"


def test_what_a_grader_fails_on_was_paid_for(use: Callable[..., RuleEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    def grade(problem: Problem, answer: str) -> Grade:
        raise IndexError("nothing was found")

    monkeypatch.setattr(task_named(TASK), "grade", grade)
    assert main([*EVAL, "--max-total-tokens", f"{2 * WORDS}"]) == 3
    assert ended() == 2
    assert main(["eval", "--resume", "run"]) == 3
    assert ended() == 2, "what it answered is not asked for again"


def test_who_waited_for_the_mean_begins_once_it_is_less() -> None:
    """The first two fit by the mean of what was before; the others wait, and do not give up."""
    spending = Spending(None, 60, {}, [of(20)])

    async def one() -> None:
        assert await spending.admits()
        await asyncio.sleep(1)
        await spending.ended(of(1))

    async def work() -> float:
        await asyncio.gather(*(one() for _ in range(20)))
        return asyncio.get_running_loop().time()

    assert run_virtual(work()) < 6


def test_dollars_are_in_the_table_and_by_role(use: Callable[[Rule], RuleEngine], capsys) -> None:
    assert main([*EVAL, "--prices", "prices.toml"]) == 0
    header, _, row, _, caption = capsys.readouterr().out.splitlines()
    assert "dollars" in header.split() and f"{WORDS:.2f}" in row
    assert f"${6 * WORDS:.4g} in all, 100 % by our own counts" in caption
    summary = json.loads(Path("run/summary.json").read_text())["sequential"]
    assert summary["usage"]["thinker"]["dollars"] == pytest.approx(summary["dollars"]["mean"])
    lines = list(RunFolder.open(Path("run")).metrics())
    assert len({line["episode"] for line in lines}) == 6
    assert sum(line["dollars"] for line in lines) == pytest.approx(summary["dollars_total"])
    Path("half.json").write_text('{"rule": {"input": 0, "output": 500000}}')
    assert main(["measure", "run", "--prices", "half.json", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["summary"]["sequential"]
    assert again["dollars_total"] == pytest.approx(3 * WORDS)
    assert main(["measure", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["sequential"]["dollars"] == summary["dollars"]


@pytest.mark.parametrize(
    ("options", "prices", "message"),
    [
        (["--max-dollars", "1"], PRICES, "max_dollars needs the prices of the models"),
        (["--max-dollars", "0", "--prices", "p.toml"], PRICES, "a limit on what is spent must be above 0"),
        (["--max-total-tokens", "-5"], PRICES, "a limit on what is spent must be above 0"),
        (["--max-dollars", "1", "--prices", "p.toml"], '["other"]\ninput = 1\noutput = 1', "needs the price of rule"),
        (["--prices", "p.toml"], "", "names no model"),
        (["--prices", "p.toml"], "[", "p.toml cannot be read"),
        (["--prices", "p.toml"], '["rule"]\ninput = 1', "output"),
        (["--prices", "p.toml"], '["rule"]\ninput = 1\noutput = -1', "must be a number from 0 on"),
        (["--prices", "p.toml"], '["rule"]\ninput = 1\noutput = 1\ncache = 1', "did you mean cached?"),
        (["--prices", "p.toml"], "input = 1", "p.toml: "),
        (["--prices", "none.toml"], PRICES, "none.toml"),
    ],
)
def test_bad_prices_are_one_line(use, capsys, options: list[str], prices: str, message: str) -> None:
    Path("p.toml").write_text(prices)
    assert main([*EVAL, *options]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not Path("run").exists()
