"""Training of a puppeteer's policy: problems → episodes by the policy → one step of REINFORCE, again and again.

DIR/policy.safetensors   the trained policy, which the organization `puppeteer` takes as its setting `policy`
DIR/checkpoints/         policy and optimizer, to go on from
DIR/costs.json           what the training has spent
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from orgthink.evaluation.compatibility import require_sampling_noise
from orgthink.evaluation.grading import graded
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode, Problem
from orgthink.record.folder import RunFolder
from orgthink.record.guard import Crash, Guard, engine_failed
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.clock import run_main
from orgthink.runtime.session import Session
from orgthink.tasks import task_named
from orgthink.tasks.task import endless
from orgthink.training import checkpoint
from orgthink.training.interrupt import interrupt
from orgthink.training.recipes.jobs import Report
from orgthink.training.rollout import ProblemStream, frozen
from orgthink.util.concurrency import run_all
from orgthink.util.errors import UserError
from orgthink.util.settings import typed
from orgthink_arena.organizations.puppet_policy import PuppetPolicy
from orgthink_arena.organizations.puppeteer import Puppeteer
from orgthink_arena.searches import costs
from orgthink_arena.searches.reinforce import FILE, Drawn, Learner, Played, PuppeteerSettings


@dataclass(frozen=True)
class _Playing:
    """A puppeteer with the policy that is being trained."""

    puppeteer: Puppeteer
    policy: PuppetPolicy
    seed: str
    decisions: list[Drawn]

    @property
    def name(self) -> str:
        return self.puppeteer.name

    @property
    def roles(self) -> tuple[str, ...]:
        return self.puppeteer.roles

    async def run(self, problem: Problem, session: Session) -> str | None:
        seed = f"{self.seed}|{problem.id}|{session.sample}"
        decided = lambda state, action: self.decisions.append(Drawn(state, action))  # noqa: E731
        return await self.puppeteer.play(problem, session, self.policy, seed, decided)


@dataclass(frozen=True, slots=True)
class PuppeteerTraining:
    """Trains the policy of a puppeteer; its models stay as they are."""

    settings: PuppeteerSettings
    """Settings of the training."""
    device: str = "auto"
    """Not used: the policy is small and learns on the CPU."""

    def require(self) -> None:
        plan = self.settings.rollout
        plan.require()
        missing = [role for role in plan.made.roles if role not in plan.models]
        if missing:
            raise UserError(f"rollout.models has no model for {', '.join(missing)}: the policy itself writes no text")
        for model in plan.models.values():
            require_sampling_noise(plan.made, model.sampling, plan.limits.capacity, plan.models)
        next(endless(task_named(plan.task), self.settings.seed))

    def run(self, folder: RunFolder, report: Report) -> Path:
        """Train from the newest checkpoint to the last step. Returns the file of the policy."""
        learner = Learner(self.settings)
        run_main(_Training(self.settings, learner, folder, report).steps())
        return folder.path / FILE


class _Training:
    """A training under way."""

    def __init__(self, settings: PuppeteerSettings, learner: Learner, folder: RunFolder, report: Report) -> None:
        self.settings, self.learner, self.folder, self.report = settings, learner, folder, report
        self.step = 0

    async def steps(self) -> None:
        settings, learner, run = self.settings, self.learner, self.folder

        def restore(folder: Path) -> list[int]:
            learner.load(folder)
            state = checkpoint.state(folder)
            found = [typed(int, state.get(name), folder / "trainer.json") for name in ("step", "drawn", "recorded")]
            journal.require_line_end(found[-1])
            return found

        drawn = recorded = 0
        with run.journal(redo=None) as journal, interrupt(lambda: f"step {self.step + 1}") as interrupted:
            if found := checkpoint.restored(run.path, restore):
                self.step, drawn, recorded = found[1]
            journal.rewind(self.step, recorded)
            problems = ProblemStream(settings.rollout, settings.seed, drawn)
            async with frozen(settings.rollout.models) as models:
                while self.step < settings.steps:
                    line, episodes = await self._step(problems, models, journal.crash)
                    self.step += 1
                    if (self.step - 1) % settings.record_every == 0:
                        journal.append(*episodes)
                    journal.log(**line)
                    self.report(line)
                    ended = self.step == settings.steps
                    if self.step % settings.save_every == 0 or ended or interrupted.is_set():
                        state = {"drawn": problems.drawn, "recorded": journal.size}
                        checkpoint.put(run.path, self.step, learner.save, state)
                    if interrupted.is_set() and not ended:
                        raise KeyboardInterrupt
            learner.policy.save(run.path / FILE)

    async def _step(
        self, problems: ProblemStream, models: Mapping[str, Backing], crash: Crash
    ) -> tuple[dict[str, Any], list[Episode]]:
        """Play and learn. Returns the metrics and the episodes."""
        began = time.monotonic()
        seed = random.Random(f"{self.settings.seed}/{self.step}").getrandbits(31)
        jobs = itertools.product(problems.batch(), range(self.settings.rollout.group))
        backings = {name: Backing(one.engine, replace(one.sampling, seed=seed)) for name, one in models.items()}
        play = self._player(seed, backings, crash)
        everything = await run_all(lambda job: play(*job), jobs)
        played = [one for one in everything if not engine_failed(one.episode) and one.decisions]
        if 2 * len(played) < len(everything):
            raise UserError(f"most episodes of step {self.step + 1} failed: check the models of the pool")
        learned = self.learner.learn(played)
        episodes, seconds = [one.episode.of_step(self.step + 1) for one in everything], time.monotonic() - began
        costs.write(self.folder.path, costs.read(self.folder.path).plus(costs.of(episodes, seconds)))
        line = {
            "step": self.step + 1,
            **learned,
            "accuracy": fmean(one.episode.grade.all_correct for one in played if one.episode.grade is not None),
            "decisions": fmean(len(one.decisions) for one in played),
            "tokens": fmean(sampled_tokens(one.episode) for one in played),
            "seconds": round(seconds, 3),
        }
        return line, episodes

    def _player(self, seed: int, backings: Mapping[str, Backing], crash: Crash) -> Callable[[Problem, int], Any]:
        plan, organization, policy = self.settings.rollout, self.settings.organization, self.learner.policy
        task = task_named(plan.task)

        async def play(problem: Problem, sample: int) -> Played:
            playing = _Playing(organization, policy, str(seed), [])
            guard = Guard(problem, organization.name, sample, plan.limits.capacity, crash)
            default = next(iter(backings.values()))
            tried = attempt(playing, problem, default, roles=backings, limits=plan.limits, sample=sample)

            async def attempted() -> Episode:
                return await graded(await tried, task)

            return Played(await guard.run(attempted()), playing.decisions)

        return play
