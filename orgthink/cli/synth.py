"""`orgthink synth`: a teacher's traces → query–response pairs for the cold start."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from orgthink.cli.options import by_role
from orgthink.cli.running import exit_code, interruptible, resumed, settings_of, stoppable, written
from orgthink.engines import Engines, engine_spec
from orgthink.evaluation.run import require_planned
from orgthink.record.episode import Sampling
from orgthink.record.folder import RunFolder, dated, require_vacant
from orgthink.record.guard import failure_message
from orgthink.runtime.clock import run_main
from orgthink.util.errors import UserError, required, user_input
from orgthink.util.install import needing
from orgthink.util.terminal import progress, show

if TYPE_CHECKING:
    from orgthink.training.coldstart.synthesis import Harvest, Synthesis


@dataclass(frozen=True, kw_only=True)
class Synth:
    """Let a teacher write traces of an organizer and its workers; keep those that pass the rules as
    query-response pairs, in JSON lines and parquet.

    Traces are stored as they end. After Ctrl-C, a crash or `kill -9`, `--resume DIR` goes on.
    """

    task: str | None = None
    """Task, whose train split is used."""
    n: int = 100
    """Number of different problems."""
    teacher: Literal["program", "model"] = "model"
    """`program` knows the task and needs no model; `model` is that of --model or --url."""
    model: str | None = None
    """A server's name for a model, a model folder, or `vllm:` and one; without it the only model of the server."""
    url: str | None = None
    """Base URL of an OpenAI-compatible server; without it OPENAI_BASE_URL serves models that are not on this
    machine. OPENAI_API_KEY is sent along."""
    template: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Arguments of the teacher's chat template, such as enable_thinking=false. A server gets them as
    `chat_template_kwargs`."""
    capacity: int = 2
    """c: agents that may decode at once, the organizer included."""
    prompts: str | None = None
    """Style of the student's prompts; without it the program's, or `paper` for a model."""
    correct_only: bool = False
    """Drop traces without an all correct answer."""
    max_tokens: int = 4096
    """Tokens that the teacher may sample for one problem."""
    temperature: float = 1.0
    """0 is greedy."""
    seed: int = 0
    """Seed for problems, plans and sampling."""
    concurrency: int = 16
    """Requests at once."""
    episodes: Path | None = None
    """Instead of a teacher: run folder of `orgthink eval --split train` or `orgthink train` with a model's own episodes
    of asyncthink. Those that are all correct and without format errors are taken."""
    out: Path | None = None
    """New run folder; without it one under runs/, named after the task and the time."""
    resume: Path | None = None
    """Run folder to go on with. Its settings hold."""

    def __call__(self) -> int:
        with needing("local"):
            from orgthink.training.coldstart.synthesis import Synthesis
        if self.episodes is not None:
            return self.imitate(self.episodes)
        if self.resume is None:
            plan = self.plan()
            return run_main(conduct(plan, self.out or dated(f"synth-{plan.task}")))
        folder = resumed(self)
        return run_main(conduct(settings_of(folder, "synth", Synthesis), folder))

    def imitate(self, episodes: Path) -> int:
        """Write the pairs of a model's own episodes. UserError for other options than --out."""
        from orgthink.training.coldstart.imitation import imitate
        from orgthink.training.coldstart.synthesis import ROWS

        if self != Synth(episodes=episodes, out=self.out):
            raise UserError("--episodes takes problems and settings from the run: give it with --out only")
        out = self.out or dated("synth-imitation")
        with user_input():
            count, right, total = imitate(RunFolder.open(episodes), out)
        show(f"{count} query-response pairs of {right} of {total} episodes are in {out / ROWS}")
        return 0

    def plan(self) -> Synthesis:
        """The plan of the options. UserError for bad input."""
        from orgthink.training.coldstart.synthesis import Synthesis, problems
        from orgthink.training.coldstart.teachers import program_of

        named = self.model is not None or self.url is not None
        if self.teacher == "program" and (named or self.template):
            raise UserError("--teacher program needs no model: leave --model, --url and --template out")
        if self.teacher == "model" and not named:
            raise UserError("no teacher: name a model with --model or --url, or take --teacher program")
        task = required(self.task, "task", "--task TASK")
        templates = by_role(self.template, "--template", "NAME=VALUE")
        for role in templates.keys() - {""}:
            raise UserError(f"--template {role}.…: there is one teacher: write NAME=VALUE")
        style = self.prompts or (program_of(task).prompts if self.teacher == "program" else "paper")
        with user_input():
            plan = Synthesis(
                task=task,
                n=self.n,
                teacher=engine_spec(self.model, self.url, template=templates.get("")) if named else None,
                capacity=self.capacity,
                prompts=style,
                correct_only=self.correct_only,
                sampling=Sampling(self.max_tokens, self.temperature, seed=self.seed),
                seed=self.seed,
                concurrency=self.concurrency,
            )
        problems(plan)
        return plan


async def conduct(plan: Synthesis, target: RunFolder | Path) -> int:
    """Make a new run at a path, or go on with one; print its result and return the exit code."""
    from orgthink.training.coldstart import synthesis, teachers

    if isinstance(target, Path):
        require_vacant(target)
    elif (harvest := _concluded(plan, target)).done == plan.n and not harvest.failed:
        return report(target, harvest)
    async with Engines() as engines:
        if plan.teacher is None:
            teach = teachers.program_teacher(plan.task, plan.capacity, plan.seed)
        else:
            with stoppable():
                engine = await engines.get(plan.teacher)
            teach = teachers.model_teacher(engine, plan.sampling, plan.capacity, plan.seed)
            plan = replace(plan, teacher=await engines.named(plan.teacher))
        folder = RunFolder.create(target, "synth", plan) if isinstance(target, Path) else target

        async def work(stop: threading.Event) -> Harvest:
            with written(folder), progress(plan.n) as advance:
                return await synthesis.synthesise(
                    plan,
                    teach,
                    folder,
                    stop=stop,
                    progress=lambda found: advance(
                        found.done,
                        f"kept {len(found.accepted)}  dropped {len(found.dropped)}  failed {len(found.failed)}",
                    ),
                )

        harvest = await interruptible(work)
    return report(folder, _concluded(plan, folder) if harvest is None else harvest)


def _concluded(plan: Synthesis, folder: RunFolder) -> Harvest:
    """The result of a run so far. Rewrites its pairs and its summary."""
    from orgthink.training.coldstart.synthesis import conclude, harvested, problems

    with written(folder), folder.journal(redo=None) as journal:
        records = list(folder.episodes())
        require_planned(problems(plan), folder, records)
        harvest = harvested(plan, records, journal.crash)
        conclude(folder, harvest)
    return harvest


def report(folder: RunFolder, harvest: Harvest) -> int:
    """Print the numbers of pairs, and how to go on if something is missing; return the exit code."""
    from orgthink.training.coldstart.synthesis import ROWS

    summary = harvest.summary()
    show(f"{summary['pairs']} query-response pairs of {summary['kept']} traces are in {folder.path / ROWS}")
    for reason, count in summary["dropped"].items():
        show(f"dropped {count:>6}  {reason}")
    count = len(harvest.failed)
    why = f"requests failed ({failure_message(harvest.failed[0])})" if count else ""
    return exit_code(folder, harvest.done, harvest.plan.n, "problems", count, why)
