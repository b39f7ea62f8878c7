"""Evaluations: every episode once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rule_engine import RuleEngine, countdown, failing
from small import TASK, TASK_OF_THREE
from terse import TERSE

from orgthink.cli.table import conditions
from orgthink.engines import Engines, EngineSpec
from orgthink.engines.engine import EngineError, EngineUnavailable
from orgthink.evaluation.plan import Evaluation, distinct, resolve, up_to
from orgthink.evaluation.run import evaluate as evaluate_resolved
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.measure.summary import summarise
from orgthink.record.episode import Edge, EdgeKind, Episode, Grade, Origin, Sampling, Span, Status, StopReason, Trace
from orgthink.record.folder import RunFolder
from orgthink.record.guard import engine_failed, failure_message
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named
from orgthink.util.errors import UserError

NAMES = ("sequential", "parallel", "asyncthink")


def plan(**changes: object) -> Evaluation:
    organizations = {name: OrganizationSpec(name, {"prompts": TERSE}) for name in NAMES}
    made = Evaluation(TASK, organizations, n=4, sampling=Sampling(100), limits=Limits(2, max_tokens=100))
    return replace(made, **changes)


def only(name: str, **changes: object) -> Evaluation:
    return plan(organizations={name: plan().organizations[name]}, **changes)


async def evaluate(
    what: Evaluation, engine: RuleEngine, folder: RunFolder, *others: RuleEngine, **options: Any
) -> list[Episode]:
    """Evaluate with an engine for everybody, but for the plan's roles, which have the other engines."""
    resolved = resolve(what)
    given = dict.fromkeys(resolved.plan.engines, engine)
    given |= {role.engine: other for role, other in zip(what.roles.values(), others, strict=bool(others))}
    return await evaluate_resolved(resolved, Engines(given), folder, **options)


def new(path: Path, what: Evaluation) -> RunFolder:
    return RunFolder.create(path / "run", "eval", what)


def timeless(episodes: list[Episode]) -> list[Episode]:
    def still(trace: Trace) -> Trace:
        spans = tuple(replace(span, start=None, end=None) for span in trace.spans)
        return replace(trace, spans=spans, start=0, end=0)

    return [replace(e, seconds=0, traces=tuple(map(still, e.traces))) for e in episodes]


async def test_every_job_becomes_one_graded_episode(tmp_path: Path):
    what = plan(samples=2)
    folder = new(tmp_path, what)
    episodes = await evaluate(what, RuleEngine(countdown), folder)
    assert [e.id for e in episodes] == [*resolve(what).planned]
    assert len({e.id for e in episodes}) == 4 * 3 * 2
    assert sorted(e.id for e in folder.episodes()) == sorted(e.id for e in episodes)
    for e in episodes:
        assert e.grade == task_named(TASK).grade(e.problem, e.answer or "")
    assert any(len(e.traces) == 2 and e.root.joins for e in episodes if e.organization == "asyncthink")
    assert json.loads((folder.path / "summary.json").read_text()) == json.loads(json.dumps(summarise(episodes)))
    metrics = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["done"] for line in metrics] == list(range(1, 25))


async def test_the_order_and_the_number_alive_do_not_change_the_episodes(tmp_path: Path):
    runs = []
    for concurrency in (1, 3, 50):
        what = plan(concurrency=concurrency)
        runs.append(timeless(await evaluate(what, RuleEngine(countdown), new(tmp_path / str(concurrency), what))))
    assert runs[0] == runs[1] == runs[2]


async def test_at_most_so_many_episodes_are_alive(tmp_path: Path):
    what = only("sequential", n=12, concurrency=5)
    engine = RuleEngine(countdown)
    await evaluate(what, engine, new(tmp_path, what))
    assert engine.most_live == 5


async def test_no_answer_is_wrong_and_an_engine_error_is_not(tmp_path: Path):
    what = only("sequential")
    mute = await evaluate(what, RuleEngine(lambda text: " hm"), new(tmp_path / "mute", what))
    assert {e.grade for e in mute} == {Grade(0, 4)}
    fault = await evaluate(
        only("asyncthink"), RuleEngine(lambda text: " <JOIN-3>"), new(tmp_path / "f", only("asyncthink"))
    )
    assert {(e.stop, e.grade) for e in fault} == {(StopReason.FORMAT, Grade(0, 4))}
    gone = await evaluate(what, RuleEngine(failing), new(tmp_path / "gone", what))
    assert {e.grade for e in gone} == {None}
    assert all(map(engine_failed, gone))
    assert failure_message(gone[0]) == "the server is gone"


def refusing(error: EngineError) -> Callable[[str], str]:
    """A rule by which only an organizer gets anything from the engine."""

    def rule(text: str) -> str:
        if not text.startswith("organizer"):
            raise error
        return countdown(text)

    return rule


@pytest.mark.parametrize(
    ("organization", "error"),
    [("parallel", EngineError("gone")), ("asyncthink", EngineUnavailable("gone"))],
)
async def test_an_engine_that_left_nothing_or_is_not_there_says_nothing_about_the_organization(
    tmp_path: Path, organization: str, error: EngineError
):
    what = only(organization)
    episodes = await evaluate(what, RuleEngine(refusing(error)), new(tmp_path, what))
    assert all(map(engine_failed, episodes))
    assert {e.grade for e in episodes} == {None}
    assert failure_message(episodes[0]) == "gone"


def test_a_missing_answer_is_the_engines_only_if_nothing_came_after_its_failure():
    problem = distinct(TASK, "test", 0, 1)[0]

    def attempted(said: int, *, code: bool = False, **changes: object) -> Episode:
        """A root that joined a failed agent after two tokens, and said so many in all."""
        spans = (Span(Origin.SAMPLED, "o " * said, said),)
        joined = Edge(EdgeKind.JOIN, "1", "manager/1", 0 if code else 2)
        root = Trace("manager", "manager", None, () if code else spans, (joined,), model=None if code else "big")
        child = Trace("manager/1", "agent", "manager", (), stop=StopReason.ERROR, status=Status.ERROR, model="small")
        return replace(Episode("x", problem, "x", 2, (root, child)), **changes)

    assert engine_failed(attempted(2)) and engine_failed(attempted(0, code=True))
    assert not engine_failed(attempted(3)), "it went on, and found no answer"
    for code in (False, True):
        assert not engine_failed(attempted(2, code=code, answer="7"))
        assert engine_failed(attempted(2, code=code, answer="7", stop=StopReason.ERROR))
    root, child = attempted(2).traces
    assert not engine_failed(attempted(2, traces=(replace(root, edges=()), child))), "nobody waited for it"
    assert not engine_failed(attempted(2, traces=(root, replace(child, model=None)))), "a tool is no engine"


async def test_resuming_redoes_only_what_is_missing_or_broken(tmp_path: Path):
    what, bad = only("sequential", n=6), {p.text for p in distinct(TASK, "test", 0, 6)[2:4]}

    def rule(text: str) -> str:
        return failing(text) if any(question in text for question in bad) else countdown(text)

    folder = new(tmp_path, what)
    first = await evaluate(what, RuleEngine(rule), folder)
    assert sum(map(engine_failed, first)) == 2
    lines = folder.episodes_file.read_bytes().splitlines(keepends=True)
    folder.episodes_file.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])
    engine = RuleEngine(countdown)
    again = await evaluate(what, engine, RunFolder.open(folder.path))
    assert engine.requests == 3
    assert [e.id for e in again] == [*resolve(what).planned]
    assert not any(map(engine_failed, again))
    assert len(list(folder.episodes())) == 6
    assert len((folder.path / "failed.jsonl").read_bytes().splitlines()) == 2
    untouched = [e for e in first if not engine_failed(e) and e != first[-1]]
    assert [e for e in again if e in untouched] == untouched
    assert json.loads((folder.path / "summary.json").read_text())["sequential"]["n"] == 6


async def test_an_episode_that_another_process_ended_before_we_had_the_lock_is_not_done_again(tmp_path: Path):
    what = only("sequential")
    first, *_ = await evaluate(what, RuleEngine(countdown), new(tmp_path / "theirs", what))

    class Contended(RunFolder):
        @contextmanager
        def journal(self, redo: Callable[[Episode], bool]):
            with super().journal() as theirs:
                theirs.append(first)
            with super().journal(redo) as ours:
                yield ours

    engine, told = RuleEngine(countdown), []
    folder = Contended.open(new(tmp_path / "ours", what).path)
    episodes = await evaluate(what, engine, folder, progress=lambda e, done: told.append(done))
    assert engine.requests == 3
    assert told == [2, 3, 4]
    assert [e.id for e in folder.episodes()].count(first.id) == 1
    assert len(episodes) == 4


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (OrganizationSpec("asynkthink"), "did you mean asyncthink"),
        (OrganizationSpec("asyncthink", {"overflw": "queue"}), "did you mean overflow"),
        (OrganizationSpec("asyncthink", {"overflow": "wait"}), "settings of mine: overflow: "),
    ],
)
def test_settings_are_checked(spec: OrganizationSpec, says: str):
    with pytest.raises(UserError, match=says):
        resolve(plan(organizations={"mine": spec}))


def test_a_role_that_no_organization_has_is_refused():
    spec = RoleSpec(EngineSpec("small"), Sampling(50))
    with pytest.raises(UserError, match="has a role 'verifier': their roles are thinker, organizer, worker"):
        resolve(plan(roles={"worker": spec, "verifier": spec}))
    assert resolve(plan(roles={"worker": spec}))


def test_parallel_is_refused_where_all_its_traces_would_be_one():
    greedy, drawn = Sampling(100, 0.0), Sampling(100, 1.0)

    def thinker(sampling: Sampling) -> dict[str, RoleSpec]:
        return {"thinker": RoleSpec(EngineSpec(), sampling)}

    for refused in (plan(sampling=greedy), plan(roles=thinker(greedy))):
        with pytest.raises(UserError, match="2 agents at temperature 0"):
            resolve(refused)
    resolve(only("parallel", sampling=greedy, limits=Limits(1)))
    resolve(plan(sampling=greedy, roles=thinker(drawn)))
    resolve(only("asyncthink", sampling=greedy))


async def test_a_stop_finishes_what_is_under_way(tmp_path: Path):
    what, stop = only("sequential", n=20, concurrency=3), asyncio.Event()
    folder = new(tmp_path, what)
    count = _after(4, stop.set)
    engine = RuleEngine(countdown)
    episodes = await evaluate(what, engine, folder, stop=stop, progress=lambda e, done: count())
    assert 4 <= len(episodes) <= 4 + 2
    assert engine.requests == len(episodes), "an episode began after the stop, or one was thrown away"
    assert json.loads((folder.path / "summary.json").read_text())["sequential"]["n"] == len(episodes)
    assert len(await evaluate(what, RuleEngine(countdown), folder)) == 20


async def test_a_cancel_keeps_what_has_ended(tmp_path: Path):
    what = only("sequential", n=20, concurrency=3)
    folder = new(tmp_path, what)
    engine = RuleEngine(countdown)
    task = asyncio.create_task(evaluate(what, engine, folder, progress=lambda e, done: count()))
    count = _after(4, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.live == 0
    assert 4 <= len(list(folder.episodes())) < 8
    assert len(await evaluate(what, RuleEngine(countdown), folder)) == 20


async def test_a_bug_ends_its_episode_and_an_error_of_the_users_the_evaluation(tmp_path: Path):
    what = plan()

    def raising(error: Exception) -> Callable[[str], str]:
        def rule(text: str) -> str:
            raise error

        return rule

    episodes = await evaluate(what, RuleEngine(raising(ZeroDivisionError("a bug"))), new(tmp_path / "bug", what))
    assert all(map(engine_failed, episodes))
    assert failure_message(episodes[0]).startswith("ZeroDivisionError in test_evaluation.py, line ")
    with pytest.raises(UserError, match="no such file"):
        await evaluate(what, RuleEngine(raising(UserError("no such file"))), new(tmp_path / "user", what))


async def test_episodes_of_another_plan_are_refused(tmp_path: Path):
    folder = new(tmp_path, plan())
    await evaluate(plan(), RuleEngine(countdown), folder)
    before = folder.episodes_file.read_bytes()
    with pytest.raises(UserError, match="does not ask for"):
        await evaluate(plan(seed=5), RuleEngine(countdown), folder)
    assert folder.episodes_file.read_bytes() == before


async def test_every_agent_has_the_same_budget_unless_it_is_renewed(tmp_path: Path):
    def long(text: str) -> str:
        return countdown(text).replace("thinking", " ".join("w" * 8)).replace("so", " ".join("v" * 8))

    def steps(episodes: list[Episode]) -> int:
        return max(trace.steps for e in episodes for trace in e.traces)

    what = only("asyncthink", sampling=Sampling(16), limits=Limits(2, max_tokens=16))
    episodes = await evaluate(what, RuleEngine(long), new(tmp_path / "a", what))
    assert steps(episodes) == 16
    assert all(e.answer is None for e in episodes)
    renewed = replace(what, limits=Limits(2))
    episodes = await evaluate(renewed, RuleEngine(long), new(tmp_path / "b", renewed))
    assert steps(episodes) > 20
    assert all(e.answer is not None for e in episodes)


def test_a_plan_survives_its_config(tmp_path: Path):
    what = plan(limits=Limits(3, episode_seconds=2.5))
    new(tmp_path, what)
    assert RunFolder.open(tmp_path / "run").settings("eval", Evaluation) == what


def test_problems_are_different_and_always_the_same():
    problems = distinct(TASK, "test", 3, 200)
    assert len({p.id for p in problems}) == 200
    up_to.cache_clear()
    assert distinct(TASK, "test", 3, 200) == problems
    assert distinct(TASK, "test", 3, 50) == problems[:50]


def test_a_task_with_too_few_problems_says_so():
    with pytest.raises(UserError, match="only 3 different"):
        distinct(TASK_OF_THREE, "test", 0, 4)
    assert len(up_to(TASK_OF_THREE, "test", 0, 4)) == 3


def test_an_evaluation_of_more_problems_than_there_are_has_all(tmp_path: Path):
    found = resolve(plan(task=TASK_OF_THREE, n=50))
    assert (found.plan.n, found.plan.wanted, len(found.planned)) == (3, 50, 3 * len(found.organizations))
    folder = RunFolder.create(tmp_path / "run", "eval", found.plan)
    assert "3 test problems" in (line := conditions(folder)["problems"]) and "50 were requested" in line
    again = resolve(folder.settings("eval", Evaluation))
    assert (again.plan, again.planned.keys()) == (found.plan, found.planned.keys())


def _after(times: int, then: Callable[[], object]) -> Callable[[], None]:
    """Something that calls `then` the n-th time that it is called."""
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls == times:
            then()

    return call
