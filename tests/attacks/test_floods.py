"""Answers within the bounds of bytes that would take long, or much memory, to read; and a user's end that is gone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, FINE, evaluated, planned
from attacks.serving import serving
from loopback import Exchange, Play, babbles, says
from small import TASK_OF_THREE

import orgthink
from orgthink.cli import main
from orgthink.record import episode_json
from orgthink.record import folder as store
from orgthink.record.episode import StopReason
from orgthink.runtime import session
from orgthink.runtime.budget import Limits
from orgthink.util import files
from orgthink.util.http import RetryPolicy

pytestmark = pytest.mark.thorough

ROOT = Path(orgthink.__file__).parent.parent

OPENED = "A server is opened by answers of 4 MiB at most."


def of_json(text: Callable[[], str]) -> Play:
    async def play(exchange: Exchange) -> None:
        await exchange.reply(200, text())

    return play


@each(
    Attack(
        "a list of 500,000 models",
        OPENED,
        "one line, exit code 2",
        ("listing", lambda: json.dumps({"data": [{"id": "a"}] * 500_000})),
    ),
    Attack(
        "a list of models that are 5 MB of numbers",
        OPENED,
        "one line, exit code 2",
        ("listing", lambda: json.dumps({"data": [1] * 2_000_000})),
    ),
    Attack(
        "a probe of 2,000,000 choices",
        OPENED,
        "one line, exit code 2",
        ("probing", lambda: json.dumps({"choices": [{}] * 2_000_000})),
    ),
)
def test_an_opening(attack: Attack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    which, text = attack.given
    with serving() as server:
        setattr(server, which, of_json(text))
        assert main(["run", "why?", "--url", server.url, "--organization", "sequential"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "more than 4194304 bytes" in line


def shell(folder: Path, where: str, *given: str) -> subprocess.CompletedProcess[str]:
    """A command whose output goes there, after a moment in which who reads it can go."""
    code = "import sys, time; time.sleep(0.5); from orgthink.cli import main; sys.exit(main())"
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return subprocess.run(
        ["bash", "-c", f'exec "$@" {where}', "bash", sys.executable, "-c", code, *given],
        cwd=folder,
        env=surroundings | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
    )


GONE = "That nobody reads standard error any more ends no run."


@each(
    Attack("standard error is on a full disk", GONE, "the run goes on, exit code 0", "2> /dev/full"),
    Attack("standard error is a pipe whose reader is gone", GONE, "the run goes on, exit code 0", "2> >(exec <&-)"),
    Attack("standard error is closed", GONE, "the run goes on, exit code 0; the table stands alone", "2>&-"),
)
def test_nobody_reads_standard_error(attack: Attack, tmp_path: Path) -> None:
    task = ["--task", TASK_OF_THREE, "--n", "3", "--organizations", "sequential", "--out", "run"]
    with serving(*[says("so <ANSWER> 1 </ANSWER>")] * 3) as server:
        done = shell(tmp_path, attack.given, "eval", "--url", server.url, "--model", "tiny", *task)
    assert done.returncode == 0 and done.stdout.startswith("organization")
    assert len((tmp_path / "run" / "episodes.jsonl").read_text().splitlines()) == 3


UNREAD = (
    "Whoever reads standard output may go, as `head` does: the command ends in silence, and what it has stored stays."
)

AWAY = "> >(exec <&-)"


@each(
    Attack("the reader of a run's story goes", UNREAD, "exit code 141, nothing on standard error",
           ("run", "why?", "--organization", "asyncthink")),
    Attack("the reader of a table goes", UNREAD, "exit code 141; the run folder is whole",
           ("eval", "--task", TASK_OF_THREE, "--n", "3", "--organizations", "sequential", "--out", "run")),
    Attack("the reader of a help text goes", UNREAD, "exit code 141, nothing on standard error", ("eval", "--help")),
    Attack("the reader of a list goes", UNREAD, "exit code 141, nothing on standard error", ("list", "tasks")),
)  # fmt: skip
def test_nobody_reads_standard_output(attack: Attack, tmp_path: Path) -> None:
    forks = says("so <FORK-1> add </FORK-1> <JOIN-1>")
    plays = [says("so <ANSWER> 1 </ANSWER>")] * 3 if attack.given[0] == "eval" else [forks]
    with serving(*plays, says("<RETURN> 2 </RETURN>"), says("<ANSWER> 2 </ANSWER>")) as server:
        model = ["--url", server.url, "--model", "tiny"] if attack.given[0] in ("run", "eval") else []
        done = shell(tmp_path, AWAY, *attack.given, *model)
    wrong = [line for line in done.stderr.splitlines() if not re.match(r"\d/3 ", line)]  # its progress
    assert (done.returncode, wrong) == (141, [])
    if "--out" in attack.given:
        again = shell(tmp_path, "", "eval", "--resume", "run")
        assert again.returncode == 0 and "sequential" in again.stdout
        assert len((tmp_path / "run" / "episodes.jsonl").read_text().splitlines()) == 3


@each(Attack("standard output is on a full disk", UNREAD, "one line, exit code 2", "> /dev/full"))
def test_nobody_keeps_standard_output(attack: Attack, tmp_path: Path) -> None:
    done = shell(tmp_path, attack.given, "list", "tasks")
    assert (done.returncode, done.stderr.splitlines()) == (2, ["orgthink: No space left on device"])


HELD = "A deadline ends whoever is served for longer, also while others of the episode wait for a place."


@each(
    Attack("endless answers to two agents, while a third one waits for a place", HELD, "deadline", (3, 2, 1)),
    Attack("endless answers to an agent of each episode, while its others wait", HELD, "deadline", (2, 3, 3)),
)
async def test_a_deadline_that_is_held(attack: Attack, tmp_path: Path) -> None:
    capacity, streams, n = attack.given
    limits = Limits(capacity, episode_seconds=0.5, grace=0.2)
    what = replace(planned("parallel", tokens=100_000, limits=limits), n=n)
    policy = RetryPolicy(silence=20.0)
    episodes = await evaluated(
        tmp_path / "run", *[babbles()] * capacity * n, what=what, retry_policy=policy, concurrency=streams
    )
    assert {episode.stop for episode in episodes.values()} == {StopReason.DEADLINE}
    assert max(episode.seconds for episode in episodes.values()) < 15


FORKING = "".join(f"<FORK-{i}> q </FORK-{i}> " for i in range(1, 401)) + "<JOIN-1> "
"""An answer of 400 forks, in one event."""


def forks(exchange: Exchange) -> Awaitable[None]:
    return says(FORKING.replace(" ", "\xa0"))(exchange)


WIDE = "Deadlines and a most number of agents end an episode that forks for ever."


@each(
    Attack("every answer has 400 forks, three levels deep, and a deadline of half a second", WIDE, "deadline",
           (Limits(1000, depth=3, episode_seconds=0.5), StopReason.DEADLINE)),
    Attack("every answer has 400 forks, three levels deep, and no deadline", WIDE, "all agents but 10,000 are refused",
           (Limits(1000, depth=3), StopReason.BUDGET)),
)  # fmt: skip
async def test_forks_for_ever(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, stop = attack.given
    monkeypatch.setattr(session, "FORKS", 1_000)  # none of which takes long
    what = replace(planned("asyncthink", tokens=2_000, limits=limits), n=1)
    episodes = await evaluated(tmp_path / "run", *[forks] * 2_000, what=what)
    (episode,) = episodes.values()
    assert episode.stop is stop and len(episode.traces) <= 1_001 and episode.seconds < 30


STORED = "An episode that is too long to be read again ends with an error, and its folder stays readable."


@each(Attack("an episode longer than a line may be (here 16 KiB)", STORED, "the others go on", "so " * 6_000))
async def test_an_episode_that_is_too_long(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (episode_json, files):  # who writes, and who reads
        monkeypatch.setattr(module, "LONGEST_LINE", 1 << 14)
    plays = (ATTACKED, says(attack.given + "<ANSWER> 3 </ANSWER>")), *[FINE] * 2
    episodes = await evaluated(tmp_path / "run", *plays, what=planned(tokens=20_000))
    long = episodes.pop(ATTACKED)
    assert long.stop is StopReason.ERROR and "longer than" in (long.error or "")
    assert [episode.answer for episode in episodes.values()] == ["3", "3"]
    assert len(list(store.RunFolder.open(tmp_path / "run").episodes())) == 3
