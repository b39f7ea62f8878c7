"""The bank of a router: how well each member of its pool solves training problems alone.

DIR/members/MEMBER/   an evaluation of `sequential` with that member's model
DIR/bank.json         the questions, with the mean score and the mean sampled tokens of each member
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from orgthink.engines import Engines
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.run import evaluate
from orgthink.evaluation.specs import OrganizationSpec, RoleSpec
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_main
from orgthink.training.recipes.jobs import Report
from orgthink.training.rollout import require_models
from orgthink.util.errors import UserError, require_at_least
from orgthink.util.files import locked, require_folder_name
from orgthink_arena.organizations.router import Known
from orgthink_arena.searches import costs

FILE = "bank.json"
"""Name of the result in the run folder."""


@dataclass(frozen=True, slots=True)
class BankSettings:
    """Problems and members of a bank."""

    task: str
    """Name of the task, or of several joined by `+`. Its training problems are taken."""
    pool: dict[str, RoleSpec]
    """Model and sampling of each member, by name."""
    prompts: str = "paper"
    """Prompt style."""
    problems: int = 256
    """Number of different problems."""
    samples: int = 1
    """Attempts of each member at each problem."""
    seed: int = 0
    """Seed of the problem stream."""
    concurrency: int = 64
    """Episodes that run at once."""

    report_every: ClassVar[int] = 50
    """Number of episodes between two progress lines if the output is not a terminal."""

    def __post_init__(self) -> None:
        require_at_least(1, self, "problems", "samples", "concurrency")
        if not self.pool:
            raise ValueError("the pool is empty: name the model of at least one member")
        for member in self.pool:
            require_folder_name(member)

    @property
    def steps(self) -> int:
        """Number of episodes to run."""
        return len(self.pool) * self.problems * self.samples

    def plan(self, member: str) -> Evaluation:
        """The evaluation of a member."""
        role = self.pool[member]
        return Evaluation(
            self.task,
            {member: OrganizationSpec("sequential", {"prompts": self.prompts})},
            self.problems,
            role.engine,
            role.sampling,
            limits=Limits(capacity=1),
            split="train",
            seed=self.seed,
            samples=self.samples,
            concurrency=self.concurrency,
        )

    def progress_text(self, line: Mapping[str, Any]) -> str:
        """The newest episode, as one line for the user."""
        return (
            f"{line['member']}  score {line['score']:.2f}" if line["score"] is not None else f"{line['member']}  failed"
        )


@dataclass(frozen=True, slots=True)
class RouterBank:
    """Evaluates each member of a pool on training problems."""

    settings: BankSettings
    """Settings of the bank."""
    device: str = "auto"
    """Not used: the members decode where their engines do."""

    def require(self) -> None:
        for member in self.settings.pool:
            resolve(self.settings.plan(member))
        require_models(self.settings.pool)

    def run(self, folder: RunFolder, report: Report) -> Path:
        """Evaluate missing episodes and write the bank. Returns its file. UserError if another process does."""
        with locked(folder.path):
            found = run_main(self._evaluated(folder, report))
            known = [asdict(one) for one in bank(found)]
            folder.write_json(FILE, {"members": list(self.settings.pool), "problems": known})
        return folder.path / FILE

    async def _evaluated(self, folder: RunFolder, report: Report) -> dict[str, list[Episode]]:
        """The episodes of each member."""
        began, found = time.monotonic(), dict[str, list[Episode]]()
        folders = {member: self._opened(folder, member) for member in self.settings.pool}
        before = [episode for one in folders.values() for episode in one.episodes()]
        failed = [episode for one in folders.values() for episode in one.failed()]
        done, total = len(before), costs.of([*before, *failed], costs.read(folder.path).seconds)

        def progress(episode: Episode, _: int) -> None:
            nonlocal done, total, began
            now = time.monotonic()
            done, total, began = done + 1, total.plus(costs.of([episode], now - began)), now
            costs.write(folder.path, total)
            score = None if episode.grade is None else episode.grade.score
            report({"step": done, "member": episode.organization, "score": score})

        async with Engines() as engines:
            for member, own in folders.items():
                found[member] = await evaluate(resolve(self.settings.plan(member)), engines, own, progress=progress)
        return found

    def _opened(self, folder: RunFolder, member: str) -> RunFolder:
        path = folder.path / "members" / member
        begun = (path / "config.json").is_file()
        return RunFolder.open(path) if begun else RunFolder.create(path, "eval", self.settings.plan(member))


def bank(episodes: Mapping[str, Iterable[Episode]]) -> list[Known]:
    """What is known of the problems that every member has attempted, by member. Ungraded episodes do not count.

    UserError if there is no such problem.
    """
    attempts: defaultdict[str, defaultdict[str, list[Episode]]] = defaultdict(lambda: defaultdict(list))
    for member, own in episodes.items():
        for episode in own:
            if episode.grade is not None:
                attempts[episode.problem.id][member].append(episode)
    found = [_known(by_member) for by_member in attempts.values() if by_member.keys() == episodes.keys()]
    if not found:
        raise UserError("the members have no graded problem in common: evaluate all of them on the same problems")
    return found


def _known(attempts: Mapping[str, list[Episode]]) -> Known:
    problem = next(iter(attempts.values()))[0].problem
    return Known(
        problem.text,
        problem.task,
        {member: fmean(one.grade.score for one in own if one.grade is not None) for member, own in attempts.items()},
        {member: fmean(map(sampled_tokens, own)) for member, own in attempts.items()},
    )
