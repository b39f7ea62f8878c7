"""Bugs that an answer brings out, in an engine or a grader: each costs its episode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, planned
from rule_engine import RuleEngine, countdown

from orgthink.cli.eval import report
from orgthink.engines import Engines
from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.evaluation.plan import resolve
from orgthink.evaluation.run import evaluate
from orgthink.record.episode import Grade, Problem, Sampling, StopReason
from orgthink.record.folder import RunFolder

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
        (lambda: Chunk(("a",), (1,), (float("nan"),), FinishReason.EOS), "ValueError in episode_json.py"),
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
        (lambda answer: Grade(10**13, 1), "ValueError in episode_json.py, line "),
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
