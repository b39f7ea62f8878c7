"""Cold-start synthesis (section 3.1 of AsyncThink): problems → a teacher → rules → query–response pairs.

A run folder of kind `synth`:

    config.json      the plan
    episodes.jsonl   what the teacher wrote, one record a problem, appended as it comes
    pairs.jsonl      rows of the accepted records, appended as they come
    pairs.parquet    the same, once the run ends
    dropped.jsonl    what was dropped, and why
    synth.json       the number of accepted records, and of rejected ones by reason

Only the records decide: everything else is a function of them, and written anew when a run is resumed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from orgthink.coldstart import pairs
from orgthink.coldstart.lesson import lesson
from orgthink.coldstart.pairs import Pair, pairs_of
from orgthink.coldstart.teachers import MODEL, PROGRAM, PROGRAMS, Teach, plan_of
from orgthink.coldstart.transcript import Dropped, Reason, read_transcript
from orgthink.concurrency import run_all
from orgthink.engines import EngineSpec
from orgthink.episode import Episode, FormatError, Problem, Sampling, StopReason, episode_id
from orgthink.errors import pick, require_at_least
from orgthink.evaluation import distinct, engine_failed, grade, require_planned, require_sampling
from orgthink.organizations.prompts import STYLES
from orgthink.store import RunFolder, write_whole
from orgthink.tabular import has_parquet
from orgthink.tasks import task_named

ROWS, TABLE = "pairs.jsonl", "pairs.parquet"


@dataclass(frozen=True, slots=True)
class Synthesis:
    """What is synthesised: everything that decides the result, as config.json holds it."""

    task: str
    """Name of the task."""
    n: int
    """Different problems, of the train split."""
    teacher: EngineSpec | None = None
    """Whose model writes; `None` is the program that knows the task."""
    capacity: int = 2
    """c: the most agents at work at once that a plan asks for, the organizer included."""
    prompts: str = "paper"
    """Style of the student's prompts."""
    correct_only: bool = False
    """Whether what does not end in an all correct answer is dropped."""
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=4096))
    """How the teacher's tokens are drawn."""
    seed: int = 0
    """Of the problems, the plans and the sampling."""
    concurrency: int = 16
    """Requests under way at once; it decides the seconds, and nothing else."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "n", "concurrency")
        require_at_least(2, self, "capacity")
        require_sampling(self.sampling)
        pick("prompt style", self.prompts, STYLES)
        if self.teacher is None:
            program = PROGRAMS.named(self.task)
            if self.prompts != program.prompts:
                raise ValueError(f"the program writes for prompts of style {program.prompts}, not {self.prompts}")

    @property
    def writer(self) -> str:
        """Organization of the records."""
        return PROGRAM if self.teacher is None else MODEL

    @property
    def author(self) -> str:
        """What the rows call the teacher."""
        return PROGRAM if self.teacher is None else self.teacher.model or MODEL


def problems(plan: Synthesis) -> dict[str, Problem]:
    """The problems by the id of their record; UserError if the task has not so many."""
    return {episode_id(problem, plan.writer, 0): problem for problem in distinct(plan.task, "train", plan.seed, plan.n)}


def lesson_of(plan: Synthesis, record: Episode) -> Episode:
    """The episode that a record tells of, graded: an organizer's trace and its workers'. Raises Dropped."""
    episode = record
    if plan.teacher is not None:
        (written,) = record.traces
        if written.stop is not StopReason.DONE:
            raise Dropped(FormatError.TRUNCATED, f"the teacher was cut off: {written.stop}")
        structure = plan_of(record.problem, plan.capacity, plan.seed)
        read = read_transcript(written.text, structure, plan.capacity)
        episode = lesson(record.problem, plan.capacity, plan.prompts, read.organizer, read.workers, MODEL)
    episode = grade(episode, task_named(plan.task))
    if plan.correct_only and not (episode.grade and episode.grade.all_correct):
        raise Dropped(Reason.WRONG_ANSWER, episode.answer or "")
    return episode


@dataclass(slots=True)
class Harvest:
    """What came of the records so far."""

    plan: Synthesis
    accepted: list[Episode] = field(default_factory=list)
    """Episodes that passed the rules."""
    dropped: list[tuple[Episode, Dropped]] = field(default_factory=list)
    """Records, and why they are dropped."""
    failed: list[Episode] = field(default_factory=list)
    """Records that an engine broke: they are done again when the run is resumed."""

    @property
    def done(self) -> int:
        return len(self.accepted) + len(self.dropped) + len(self.failed)

    @property
    def rows(self) -> list[Pair]:
        return [pair for episode in self.accepted for pair in pairs_of(episode, self.plan.author)]

    def take(self, record: Episode) -> Episode | None:
        """Sort a record; returns its lesson if it is accepted."""
        if engine_failed(record):
            self.failed.append(record)
            return None
        try:
            self.accepted.append(lesson_of(self.plan, record))
        except Dropped as why:
            self.dropped.append((record, why))
            return None
        return self.accepted[-1]

    def summary(self) -> dict[str, Any]:
        """Counts, as synth.json has them. Shares are `None` where nothing was accepted."""
        reasons = Counter(str(why.reason) for _, why in self.dropped)
        rows = self.rows
        right = sum(bool(episode.grade and episode.grade.all_correct) for episode in self.accepted)
        accepted = len(self.accepted)
        return {
            "teacher": self.plan.author,
            "problems": self.plan.n,
            "done": self.done,
            "kept": accepted,
            "dropped": dict(sorted(reasons.items())),
            "failed": len(self.failed),
            "pairs": len(rows),
            "sub_queries": sum(pair.role == "worker" for pair in rows) / accepted if accepted else None,
            "all_correct": right / accepted if accepted else None,
        }


async def synthesise(
    plan: Synthesis,
    teach: Teach,
    folder: RunFolder,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Harvest], None] = lambda harvest: None,
) -> Harvest:
    """Do what is missing or engine_failed, append what comes, and write the summary.

    `progress` hears of every record that comes. Once `stop` is set nothing more begins, and what is under way is
    finished. Raises UserError if the folder holds records of another plan, OSError if it cannot be written; what was
    appended stays.
    """
    todo = problems(plan)
    with folder.journal(redo=engine_failed) as journal:
        require_planned(todo, folder, journal.episodes)
        harvest = harvested(plan, journal.episodes)
        done = {record.id for record in journal.episodes}
        missing = [problem for name, problem in todo.items() if name not in done]
        pairs.write(folder.path / ROWS, harvest.rows)
        with (folder.path / ROWS).open("ab", buffering=0) as rows:

            async def work(problem: Problem) -> None:
                record = await teach(problem)
                journal.append(record)
                episode = harvest.take(record)
                if episode is not None:
                    rows.write(b"".join(map(pairs.line, pairs_of(episode, plan.author))))
                progress(harvest)

            await run_all(work, missing, plan.concurrency, stop)
        conclude(folder, harvest)
    return harvest


def harvested(plan: Synthesis, records: Iterable[Episode]) -> Harvest:
    """What came of these records."""
    harvest = Harvest(plan)
    for record in records:
        harvest.take(record)
    return harvest


def conclude(folder: RunFolder, harvest: Harvest) -> None:
    """Write what is a function of the records, problem by problem; parquet only where pyarrow is installed."""
    place = {name: place for place, name in enumerate(problems(harvest.plan))}
    harvest.accepted.sort(key=lambda episode: place[episode.id])
    harvest.dropped.sort(key=lambda dropped: place[dropped[0].id])
    dropped = [{"episode": record.id, "reason": why.reason, "detail": why.detail} for record, why in harvest.dropped]
    lines = [json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n" for line in dropped]
    write_whole(folder.path / "dropped.jsonl", b"".join(lines))
    pairs.write(folder.path / ROWS, harvest.rows)
    if has_parquet():
        pairs.write(folder.path / TABLE, harvest.rows)
    folder.write_json("synth.json", harvest.summary())
