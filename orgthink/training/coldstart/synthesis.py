"""Cold-start synthesis (section 3.1 of AsyncThink): problems → a teacher → rules → query–response pairs.

A run folder of kind `synth`:

    config.json      the plan
    episodes.jsonl   the teacher's texts, one record per problem, appended as each arrives
    pairs.jsonl      pairs of the accepted records
    dropped.jsonl    the rejected records, each with its reason
    synth.json       the number of accepted records, and of rejected ones by reason

The last three are functions of the first two. They are written when the run ends; a resumed run writes them again.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orgthink.engines import EngineSpec
from orgthink.evaluation.compatibility import require_sampling
from orgthink.evaluation.grading import grade
from orgthink.evaluation.plan import distinct
from orgthink.evaluation.run import require_planned
from orgthink.organizations.prompts import STYLES
from orgthink.record.episode import Episode, FormatError, Problem, Sampling, StopReason, episode_id
from orgthink.record.folder import RunFolder
from orgthink.record.guard import Crash, Guard, engine_failed
from orgthink.tasks import task_named
from orgthink.training.coldstart import pairs
from orgthink.training.coldstart.lesson import lesson
from orgthink.training.coldstart.pairs import Pair, pairs_of
from orgthink.training.coldstart.teachers import MODEL, PROGRAM, Teach, plan_of, program_of, program_teacher
from orgthink.training.coldstart.transcript import Dropped, Reason, read_transcript
from orgthink.util.concurrency import Stop, run_all
from orgthink.util.errors import Failure, UserError, pick, require_at_least
from orgthink.util.files import write_whole
from orgthink.util.redaction import redact_json
from orgthink.util.threads import PROGRAMS, off_loop

ROWS = "pairs.jsonl"


@dataclass(frozen=True, slots=True)
class Synthesis:
    """Everything that determines the result of a synthesis, as config.json stores it."""

    task: str
    """Name of the task."""
    n: int
    """Number of different problems, from the train split."""
    teacher: EngineSpec | None = None
    """Engine and model of the teacher; `None`: the task's program writes the traces."""
    capacity: int = 2
    """c: largest number of agents that a plan runs at once, the organizer included."""
    prompts: str = "paper"
    """Style of the student's prompts."""
    correct_only: bool = False
    """Whether records whose answer is not all correct are dropped."""
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=4096))
    """Sampling settings of the teacher."""
    seed: int = 0
    """Seed of the problems, the plans and the sampling."""
    concurrency: int = 16
    """Largest number of concurrent requests. It affects the duration only."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "n", "concurrency")
        require_at_least(2, self, "capacity")
        require_sampling(self.sampling)
        pick("prompt style", self.prompts, STYLES)
        if self.teacher is None:
            program = program_of(self.task)
            if self.prompts != program.prompts:
                raise ValueError(f"the program writes for prompts of style {program.prompts}, not {self.prompts}")

    @property
    def writer(self) -> str:
        """Name of the organization in the records."""
        return PROGRAM if self.teacher is None else MODEL

    @property
    def author(self) -> str:
        """Name of the teacher in the pairs."""
        return PROGRAM if self.teacher is None else self.teacher.model or MODEL


def problems(plan: Synthesis) -> dict[str, Problem]:
    """The problems by the id of their record. UserError if the task has fewer than `n` different problems."""
    return {episode_id(problem, plan.writer, 0): problem for problem in distinct(plan.task, "train", plan.seed, plan.n)}


def lesson_of(plan: Synthesis, record: Episode) -> Episode:
    """The graded episode of an organizer and its workers that a record describes. Raises Dropped for a broken rule."""
    episode = record
    if plan.teacher is not None:
        (trace,) = record.traces
        if trace.stop is not StopReason.DONE:
            raise Dropped(FormatError.TRUNCATED, f"the teacher's reply was truncated: {trace.stop}")
        texts = read_transcript(trace.text, plan_of(record.problem, plan.capacity, plan.seed), plan.capacity)
        episode = lesson(record.problem, plan.capacity, plan.prompts, *texts, MODEL)
    episode = grade(episode, task_named(plan.task))
    if plan.correct_only and not (episode.grade and episode.grade.all_correct):
        raise Dropped(Reason.WRONG_ANSWER, episode.answer or "")
    return episode


Outcome = Episode | Dropped | None
"""The result of a record: its episode, or the reason why it has no episode; `None` if its engine failed."""


def judged(plan: Synthesis, record: Episode, crash: Crash) -> Outcome:
    """The result of a record. Grading may take seconds. A record whose grader failed is dropped until a
    resumed run grades it again; a UserError is raised."""
    try:
        return None if engine_failed(record) else lesson_of(plan, record)
    except Dropped as why:
        return why
    except UserError:
        raise
    except Failure as error:
        return Dropped(Reason.UNGRADED, str(error))
    except Exception as bug:
        return Dropped(Reason.UNGRADED, crash(record.id, bug))


@dataclass(slots=True)
class Harvest:
    """The records so far, sorted into accepted, dropped and failed ones."""

    plan: Synthesis
    accepted: list[Episode] = field(default_factory=list)
    """Episodes that passed the rules."""
    dropped: list[tuple[Episode, Dropped]] = field(default_factory=list)
    """Rejected records with their reasons."""
    failed: list[Episode] = field(default_factory=list)
    """Records that failed with an engine error. A resumed run repeats them."""

    @property
    def done(self) -> int:
        return len(self.accepted) + len(self.dropped) + len(self.failed)

    @property
    def rows(self) -> list[Pair]:
        return [pair for episode in self.accepted for pair in pairs_of(episode, self.plan.author)]

    def take(self, record: Episode, became: Outcome) -> None:
        """Sort a record, and what it became, into one of the lists."""
        match became:
            case None:
                self.failed.append(record)
            case Dropped():
                self.dropped.append((record, became))
            case _:
                self.accepted.append(became)

    def summary(self) -> dict[str, Any]:
        """The counts of synth.json. Means over accepted records are `None` without any."""
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
    stop: Stop | None = None,
    progress: Callable[[Harvest], None] = lambda harvest: None,
) -> Harvest:
    """Run the teacher on all problems without a usable record, and write the files of the run folder.

    Records that failed with an engine error are repeated. A bug of the teacher ends only its record, as an error, and
    its traceback goes to crashes.log. If only the grader failed, the record is stored, and a resumed run grades it.
    `progress` is called after every record. Once `stop` is set, no further problem starts, and the running ones finish.
    UserError if the folder holds records of another plan, OSError if it cannot be written; stored records stay.
    """
    todo = problems(plan)
    with folder.journal(redo=engine_failed) as journal:
        require_planned(todo, folder, journal.episodes)
        harvest = await off_loop(PROGRAMS, harvested, plan, journal.episodes, journal.crash)
        done = {record.id for record in journal.episodes}
        missing = [problem for name, problem in todo.items() if name not in done]

        async def work(problem: Problem) -> None:
            guard = Guard(problem, plan.writer, 0, plan.capacity, journal.crash)
            record = guard.store(journal, await guard.run(teach(problem)))
            harvest.take(record, await off_loop(PROGRAMS, judged, plan, record, journal.crash))
            progress(harvest)

        await run_all(work, missing, plan.concurrency, stop)
        conclude(folder, harvest)
    return harvest


def program_pairs(plan: Synthesis, path: Path) -> Path:
    """The file of pairs in a run folder at `path`, where the task's program writes them unless it has done so."""
    if not (path / ROWS).is_file():
        folder = RunFolder.open(path) if (path / "config.json").is_file() else RunFolder.create(path, "synth", plan)
        asyncio.run(synthesise(plan, program_teacher(plan.task, plan.capacity, plan.seed), folder))
    return path / ROWS


def harvested(plan: Synthesis, records: Iterable[Episode], crash: Crash) -> Harvest:
    """Sort these records into a `Harvest`."""
    harvest = Harvest(plan)
    for record in records:
        harvest.take(record, judged(plan, record, crash))
    return harvest


def conclude(folder: RunFolder, harvest: Harvest) -> None:
    """Write the pairs, the rejected records and the summary, in the order of the problems."""
    place = {name: place for place, name in enumerate(problems(harvest.plan))}
    harvest.accepted.sort(key=lambda episode: place[episode.id])
    harvest.dropped.sort(key=lambda dropped: place[dropped[0].id])
    dropped = [{"episode": record.id, "reason": why.reason, "detail": why.detail} for record, why in harvest.dropped]
    lines = [redact_json(json.dumps(line, ensure_ascii=False)).encode("utf-8", "replace") + b"\n" for line in dropped]
    write_whole(folder.path / "dropped.jsonl", b"".join(lines))
    pairs.write(folder.path / ROWS, harvest.rows)
    folder.write_json("synth.json", harvest.summary())
