"""Bugs that an answer brings out, in an engine or a grader: each costs its episode."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, planned
from rule_engine import RuleEngine, countdown

from orgthink.cli.eval import report
from orgthink.engines import Engines
from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.evaluate.plan import resolve
from orgthink.evaluate.run import evaluate
from orgthink.organizations.sequential import Sequential
from orgthink.record.episode import Episode, Grade, Problem, Sampling, StopReason
from orgthink.record.folder import RunFolder
from orgthink.record.guard import engine_failed
from orgthink.runtime.session import Session
from orgthink.util.errors import ToolError

pytestmark = pytest.mark.thorough

BUG = "An exception in an episode is its `stop=error`; the others go on, and its traceback is in `crashes.log`."
WHERE = "exit code 1, and a line with the exception, its file and its line"


class Fragile(RuleEngine):
    """An engine with a bug that one problem brings out."""

    def __init__(self, bug: Callable[[], Chunk]) -> None:
        super().__init__(countdown)
        self._bug = bug

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        self.requests += 1
        if ATTACKED in context.text:
            yield (chunk := self._bug())
            if chunk.finish:
                return
        yield Chunk(("so <ANSWER> 3 </ANSWER>",), finish=FinishReason.EOS)


def divides() -> Chunk:
    raise ZeroDivisionError("by\nnothing")


def has_no_file() -> Chunk:
    raise FileNotFoundError(2, "No such file", "engine.bin")


def recurses() -> Chunk:
    return recurses()


class Mute(Exception):
    """Cannot say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def is_mute() -> Chunk:
    raise Mute


def is_mute_among_others() -> Chunk:
    raise ExceptionGroup("two", [Mute(), ValueError("b")])


def cancels_itself() -> Chunk:
    raise asyncio.CancelledError


@each(
    Attack("an engine of a plug-in divides by zero", BUG, WHERE, (divides, "ZeroDivisionError in test_bugs.py, line")),
    Attack("an engine of a plug-in misses a file", BUG, WHERE, (has_no_file, "FileNotFoundError in test_bugs.py")),
    Attack("an engine of a plug-in recurses without end", BUG, WHERE, (recurses, "RecursionError in test_bugs.py")),
    Attack(
        "an engine of a plug-in fails with an error that has no text", BUG, WHERE, (is_mute, "Mute in test_bugs.py")
    ),
    Attack(
        "an engine of a plug-in fails with several errors, one of which has no text",
        BUG,
        WHERE,
        (is_mute_among_others, "Mute in "),
    ),
    Attack("an engine of a plug-in cancels its own work", BUG, WHERE, (cancels_itself, "RuntimeError in attempt.py")),
    Attack(
        "an engine of a plug-in says a list",
        BUG,
        WHERE,
        (lambda: Chunk((["a"],)), "AttributeError in "),  # type: ignore[arg-type]
    ),
    Attack(
        "an engine of a plug-in gives a log-probability of NaN",
        BUG,
        "the same, because the episode cannot be stored",
        (lambda: Chunk(("a",), (1,), (float("nan"),), FinishReason.EOS), "ValueError in integrity.py"),
    ),
)
async def test_a_bug_in_one_episode(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bug, message = attack.given
    what = planned()
    folder = RunFolder.create(tmp_path / "run", "eval", what)
    resolved = resolve(what)
    engine = Fragile(bug)
    episodes = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)
    attacked = next(episode for episode in episodes if episode.problem.text == ATTACKED)
    assert [episode.answer for episode in episodes if episode is not attacked] == ["3"] * 2
    assert (attacked.stop, attacked.error_kind, attacked.grade) == (StopReason.ERROR, None, None)
    assert attacked.error and attacked.error.startswith(message) and "\n" not in attacked.error
    log = (folder.path / "crashes.log").read_text()
    assert attacked.id in log and "Traceback (most recent call last)" in log
    assert report(resolved, folder, episodes) == 1
    assert message in capsys.readouterr().err
    mended = Fragile(lambda: Chunk(("hm",)))
    again = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, mended)), RunFolder.open(folder.path))
    assert ([episode.answer for episode in again], mended.requests) == (["3"] * 3, 1)


class Panic(BaseException):
    """Of a library in Rust."""


@each(
    Attack("a grader of a plug-in takes the first of nothing", BUG, WHERE, lambda: next(iter([]))),
    Attack("a grader of a plug-in is cancelled", BUG, WHERE, lambda: throws(asyncio.CancelledError())),
    Attack("a grader of a plug-in leaves by `sys.exit`", BUG, WHERE, lambda: throws(SystemExit(3))),
    Attack("a grader of a plug-in raises GeneratorExit", BUG, WHERE, lambda: throws(GeneratorExit())),
    Attack("a grader of a plug-in says that it was interrupted", BUG, WHERE, lambda: throws(KeyboardInterrupt())),
    Attack("a grader of a plug-in calls a library in Rust that panics", BUG, WHERE, lambda: throws(Panic("index"))),
)
async def test_a_grader_that_raises_no_ordinary_error(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = planned()
    resolved = resolve(what)
    grades = resolved.task.grade

    def graded(problem: Problem, answer: str) -> Grade:
        return grades(problem, answer) if problem.text != ATTACKED else attack.given()

    monkeypatch.setattr(resolved.task, "grade", graded)
    engine = Fragile(lambda: Chunk(("so <ANSWER> 3 </ANSWER>",), finish=FinishReason.EOS))
    folder = RunFolder.create(tmp_path / "run", "eval", what)
    async with asyncio.timeout(30):
        episodes = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)
    (attacked,) = [episode for episode in episodes if episode.stop is StopReason.ERROR]
    assert [episode.answer for episode in episodes if episode is not attacked] == ["3"] * 2
    assert str(attacked.error).startswith("RuntimeError in beside.py, line ")
    assert "Traceback (most recent call last)" in (folder.path / "crashes.log").read_text()


def throws(error: BaseException) -> Grade:
    raise error


@each(
    Attack("an organization of a plug-in returns a number", BUG, WHERE, (lambda: 7, "WrongReturn in attempt.py")),
    Attack("an organization of a plug-in returns bytes", BUG, WHERE, (lambda: b"3", "WrongReturn in attempt.py")),
    Attack(
        "an organization of a plug-in leaves by `sys.exit`",
        BUG,
        WHERE,
        (lambda: throws(SystemExit(3)), "RuntimeError in concurrency.py"),
    ),
)
async def test_a_bug_in_an_organization(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bug, message), honest, what = attack.given, Sequential.run, planned()

    async def run(self: Sequential, problem: Problem, session: Session) -> str | None:
        return await honest(self, problem, session) if problem.text != ATTACKED else bug()

    monkeypatch.setattr(Sequential, "run", run)
    resolved, folder = resolve(what), RunFolder.create(tmp_path / "run", "eval", what)
    engine = RuleEngine(lambda text: "so <ANSWER> 3 </ANSWER>")
    episodes = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)
    (attacked,) = [episode for episode in episodes if episode.stop is StopReason.ERROR]
    assert [episode.answer for episode in episodes if episode is not attacked] == ["3"] * 2
    assert attacked.problem.text == ATTACKED and str(attacked.error).startswith(message)
    assert report(resolved, folder, episodes) == 1


@each(
    Attack("an organization of a plug-in fails after its agents have answered", BUG, WHERE, ZeroDivisionError("late")),
    Attack(
        "an organization of a plug-in cancels its own work after its agents have answered",
        BUG,
        WHERE,
        asyncio.CancelledError(),
    ),
)
async def test_a_late_bug_in_an_organization(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, what = Sequential.run, planned()

    async def run(self: Sequential, problem: Problem, session: Session) -> str | None:
        answer = await honest(self, problem, session)
        if problem.text == ATTACKED:
            raise attack.given
        return answer

    monkeypatch.setattr(Sequential, "run", run)
    resolved, folder = resolve(what), RunFolder.create(tmp_path / "run", "eval", what)
    engine = RuleEngine(lambda text: "so <ANSWER> 3 </ANSWER>")
    episodes = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)
    (attacked,) = [episode for episode in episodes if episode.stop is StopReason.ERROR]
    assert attacked.root.text == "so <ANSWER> 3 </ANSWER>" and attacked.root.steps == 4, "it was paid for"
    assert (attacked.answer, attacked.error_kind, attacked.grade) == (None, None, None)
    assert str(attacked.error).endswith(" (a bug: its traceback is in crashes.log)")
    monkeypatch.setattr(Sequential, "run", honest)
    again = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), RunFolder.open(folder.path))
    assert [episode.answer for episode in again] == ["3"] * 3 and engine.requests == 4
    assert [episode.root.steps for episode in folder.failed()] == [4]


@each(
    Attack(
        "a grader of a plug-in fails on one answer",
        BUG,
        WHERE,
        (
            lambda answer: {}[answer],
            "KeyError in test_bugs.py, line {line}: '3' (a bug: its traceback is in crashes.log)",
        ),
    ),
    Attack(  # left out as if it had failed, a wrong answer would count for nothing
        "a grader of a plug-in forgets to return its grade",
        BUG,
        WHERE,
        (lambda answer: None, "TypeError in grading.py, line "),
    ),
    Attack(
        "a grader of a plug-in finds more right solutions than a number may say",
        BUG,
        WHERE,
        (lambda answer: Grade(10**13, 1), "ValueError in integrity.py, line "),
    ),
)
async def test_a_bug_in_a_grader(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what, (bug, message) = planned(), attack.given
    resolved = resolve(what)
    grades = resolved.task.grade

    def graded(problem: Problem, answer: str) -> Grade:
        return grades(problem, answer) if problem.text != ATTACKED else bug(answer)

    monkeypatch.setattr(resolved.task, "grade", graded)
    engine = Fragile(lambda: Chunk(("hm",)))
    folder = RunFolder.create(tmp_path / "run", "eval", what)
    episodes = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)
    (attacked,) = [episode for episode in episodes if episode.stop is StopReason.ERROR]
    assert str(attacked.error).startswith(message.format(line=bug.__code__.co_firstlineno))
    assert str(attacked.error).endswith(" (a bug: its traceback is in crashes.log)")
    assert report(resolved, folder, episodes) == 1
    assert attacked.answer == "3" and attacked.root.steps, "it was paid for"
    monkeypatch.setattr(resolved.task, "grade", grades)
    again = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), RunFolder.open(folder.path))
    assert [episode.grade for episode in again] == [grades(each.problem, "3") for each in again]
    assert engine.requests == 3, "a resume only grades it"


@each(
    *(
        Attack(f"a measure of a plug-in {how} for one episode",
               "A measure that fails costs its own value of that episode: the table and the summary stand.",
               "a line with the measure, the episode and the reason", measured)
        for how, measured in {
            "divides by zero": lambda: 1 / 0,
            "is NaN": lambda: float("nan"),
            "is endless": lambda: float("inf"),
            "is an integer of 400 digits": lambda: 10**400,
            "is a text": lambda: "many",
            "fails with an error that has no text": is_mute,
        }.items()
    )
)  # fmt: skip
async def test_a_bug_in_a_measure(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measures = {"own": lambda episode: attack.given() if episode.problem.text == ATTACKED else 2}
    monkeypatch.setattr(Sequential, "measures", measures, raising=False)
    what = planned()
    resolved, folder = resolve(what), RunFolder.create(tmp_path / "run", "eval", what)
    engine = RuleEngine(lambda text: "so <ANSWER> 3 </ANSWER>")
    episodes = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)
    assert report(resolved, folder, episodes) == 0
    own = resolved.summary(episodes)["sequential"]["measures"]["own"]
    assert (own["mean"], own["n"]) == (2, 2)
    (attacked,) = [episode.id for episode in episodes if episode.problem.text == ATTACKED]
    assert f"the measure own has no value of episode {attacked}: " in caplog.text


@each(
    Attack(
        "a sandbox is away while answers are graded",
        "An answer that was paid for is stored, whatever becomes of its grade.",
        "exit code 1; a resume grades it and asks no model",
    )
)
async def test_a_sandbox_that_is_away(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    what, broken = planned(), ToolError("no sandbox at it")
    resolved = resolve(what)
    grades = resolved.task.grade

    def away(problem: Problem, answer: str) -> Grade:
        if problem.text == ATTACKED:
            raise broken
        return grades(problem, answer)

    async def evaluated(folder: RunFolder) -> list[Episode]:
        return await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)

    engine = RuleEngine(lambda text: "so <ANSWER> 2 </ANSWER>")
    folder = RunFolder.create(tmp_path / "run", "eval", what)
    monkeypatch.setattr(resolved.task, "grade", away)
    for error in (broken, ToolError("still none"), KeyError("a bug")):
        broken = error  # a resume that meets it again changes nothing else
        episodes = await evaluated(folder)
        (attacked,) = [episode for episode in episodes if episode.grade is None]
        assert attacked.answer == "2" and attacked.root.steps and engine_failed(attacked)
        assert str(error) in str(attacked.error) and engine.requests == 3
        assert report(resolved, folder, episodes) == 1
        assert str(error) in capsys.readouterr().err
        folder = RunFolder.open(folder.path)
        assert sorted(e.id for e in folder.episodes()) == sorted(resolved.planned)
    monkeypatch.setattr(resolved.task, "grade", grades)
    done = await evaluated(folder)
    assert report(resolved, folder, done) == 0 and engine.requests == 3
    graded = next(episode for episode in done if episode.id == attacked.id)
    assert graded == replace(attacked, stop=StopReason.DONE, error=None, error_kind=None, grade=Grade(1, 1))
    assert list(folder.failed()) == []


@each(
    Attack(
        "an answer that takes its grader long",
        "Graders run beside the event loop.",
        "the other episodes go on",
    )
)
async def test_a_slow_grader(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.Semaphore(0)

    def slow(problem: Problem, answer: str) -> Grade:
        if problem.text != ATTACKED:
            others.release()
        elif not all(others.acquire(timeout=30) for _ in range(2)):
            raise TimeoutError("the others did not go on")
        return Grade(1, 1)

    what = planned()
    resolved = resolve(what)
    monkeypatch.setattr(resolved.task, "grade", slow)
    engine = RuleEngine(lambda text: "so <ANSWER> 3 </ANSWER>")
    folder = RunFolder.create(tmp_path / "run", "eval", what)
    episodes = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)
    assert [episode.stop for episode in episodes] == [StopReason.DONE] * 3
