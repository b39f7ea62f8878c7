"""Who forks, how early, and that on `parts` it pays exactly where parts are independent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import pytest
from rule_engine import RuleEngine
from terse import TERSE

from orgthink.cli.table import cells
from orgthink.evaluate.grading import grade
from orgthink.measure.forking import forked, forks_before_thought
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import summarise
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import CONTROLLER, Episode, Origin, Sampling, Span
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named

TASKS = "parts:independent?steps=12+parts:chained?steps=12"


def lines(text: str) -> dict[str, list[str]]:
    """Part → what it starts with, and its steps."""
    return {name: line.split() for name, line in re.findall(r"^([a-z]) = (\w(?: [+*] \w)+)", text, re.MULTILINE)}


def worked_out(line: list[str], known: dict[str, str]) -> list[str]:
    """The value after each step, as one who counts on aloud."""
    values = [int(known.get(line[0], line[0]))]
    for operator, operand in zip(line[1::2], line[2::2], strict=True):
        values.append((values[-1] + int(operand) if operator == "+" else values[-1] * int(operand)) % 10)
    return list(map(str, values))


def worker(text: str) -> str:
    """Works out one part of the question; the sub-query names it, and the result of the part that it starts with."""
    name, *given = text.rpartition("subtask")[2].split()[:2]
    line = lines(text)[name]
    said = worked_out(line, {line[0]: given[0]} if given else {})
    return f" {' '.join(said)} <RETURN> {said[-1]} </RETURN>"


def alone(text: str) -> str:
    if text.startswith("worker"):
        return worker(text)
    known: dict[str, str] = {}
    words = []
    for name, line in lines(text).items():
        words += worked_out(line, known)
        known[name] = words[-1]
    return f" {' '.join(words)} <ANSWER> {' '.join(known.values())} </ANSWER>"


def eager(text: str) -> str:
    """Forks every part as soon as what it starts with is known, and joins in order."""
    if text.startswith("worker"):
        return worker(text)
    parts = lines(text)
    known = {list(parts)[int(key) - 1]: result for key, result in re.findall(r"<JOIN-(\d)> (\d) </JOIN", text)}
    if len(known) == len(parts):
        return f" <ANSWER> {' '.join(known.values())} </ANSWER>"
    forked_keys = set(re.findall(r"</FORK-(\d)>", text))
    said = ""
    if len(forked_keys) == len(known):
        for key, (name, (start, *_)) in enumerate(parts.items(), 1):
            if name not in known and (start.isdigit() or start in known):
                forked_keys.add(str(key))
                said += f" <FORK-{key}> {name} {known.get(start, '')} </FORK-{key}>"
    return f"{said} <JOIN-{len(known) + 1}>"


def aware(text: str) -> str:
    """Forks where parts are independent, and nowhere else."""
    independent = all(line[0].isdigit() for line in lines(text).values())
    return eager(text) if independent or text.startswith("worker") else alone(text)


def episodes(rule: Callable[[str], str], n: int = 8) -> list[Episode]:
    task, engine = task_named(TASKS), RuleEngine(rule)
    problems = islice(task.problems("test", 0), n)
    limits = Limits(7)

    async def run() -> list[Episode]:
        backing = Backing(engine, Sampling(500, 0.0))
        return [await attempt(AsyncThink(prompts=TERSE), problem, backing, limits=limits) for problem in problems]

    return [grade(episode, task) for episode in asyncio.run(run())]


@pytest.fixture(scope="module")
def of() -> dict[str, list[Episode]]:
    return {rule.__name__: episodes(rule) for rule in (alone, eager, aware)}


def test_forks_pay_exactly_where_parts_are_independent(of: dict[str, list[Episode]]) -> None:
    assert all(one.grade is not None and one.grade.all_correct for found in of.values() for one in found)
    for by_one, by_forks, by_both in zip(*of.values(), strict=True):
        paths = [critical_path(episode) for episode in (by_one, by_forks, by_both)]
        if by_one.problem.data["kind"] == "independent":
            assert paths[1] == paths[2] < 0.6 * paths[0]
        else:
            assert paths[0] == paths[2] < 0.8 * paths[1]


def test_alone_both_kinds_take_the_same_work(of: dict[str, list[Episode]]) -> None:
    paths = {(one.problem.data["kind"], critical_path(one)) for one in of["alone"]}
    assert len({path for _, path in paths}) == 1 and len(paths) == 2


def test_the_shares_of_each_task_are_in_the_summary_and_in_the_table(of: dict[str, list[Episode]]) -> None:
    summary = summarise(replace(one, organization=rule) for rule, found in of.items() for one in found)
    independent, chained = TASKS.split("+")
    shares = {
        rule: [row["by_task"][name]["forked"]["mean"] for name in (independent, chained)]
        for rule, row in summary.items()
    }
    assert shares == {"alone": [0, 0], "eager": [1, 1], "aware": [1, 0]}
    assert [summary[rule]["forked"]["mean"] for rule in shares] == [0, 1, 0.5]
    early = summary["eager"]["by_task"]
    assert [early[name]["forks_before_thought"]["mean"] for name in (independent, chained)] == [6, 1]
    header, rows = cells(summary)
    assert [row[header.index(f"forks, {chained} %")].split()[0] for row in rows] == ["0", "100", "0"]
    assert "by_task" not in summarise(of["alone"][::2])["asyncthink"], "one task is no mixture"


def test_forks_before_the_first_thought(of: dict[str, list[Episode]]) -> None:
    episode = of["eager"][0]
    prompt, first, *rest = episode.root.spans

    def thinking(text: str) -> Episode:
        spans = (prompt, replace(first, text=text), *rest)
        return replace(episode, traces=(replace(episode.root, spans=spans), *episode.traces[1:]))

    two = " <FORK-1> a </FORK-1>\n<FORK-2> b </FORK-2>"
    assert forks_before_thought(thinking(f"{two} well <FORK-3> c </FORK-3> <JOIN-1>")) == 2
    assert forks_before_thought(thinking(f"well {two}")) == 0
    assert forks_before_thought(thinking("no tags, as with native calls")) is None
    assert forks_before_thought(of["alone"][0]) == 0 and not forked(of["alone"][0])
    injected = Span(Origin.INJECTED, two, 3)
    assert (
        forks_before_thought(replace(of["alone"][0], traces=(replace(of["alone"][0].root, spans=(prompt, injected)),)))
        == 0
    )
    code = replace(episode, traces=(replace(episode.root, role=CONTROLLER, model=None), *episode.traces[1:]))
    assert forks_before_thought(code) is None and not forked(code)
