"""`orgthink view`: a run as an HTML page."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.cli.following import Following
from orgthink.cli.table import conditions
from orgthink.evaluation.plan import recorded
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder, require_output
from orgthink.util.errors import UserError, pick
from orgthink.util.files import write_whole
from orgthink.util.registry import registered_only
from orgthink.util.terminal import show
from orgthink.view import render
from orgthink.view.transcript import transcript

MOST_EPISODES = 2_000
"""Most episodes of a training on one page, unless a single step has more."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Write a run as one self-contained HTML page; it opens in any browser, without a server.

    Episodes of a training are grouped by step.
    """

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """Run folder."""
    out: Path | None = None
    """HTML file; without it view.html in the run folder."""
    episode: str | None = None
    """Id of the only episode to show; without it all are."""
    transcript: bool = False
    """Print the episodes as text instead, in order of time."""
    serve: bool = False
    """Serve the page of a growing run to browsers on this machine, until Ctrl-C."""
    port: int = 8765
    """Port of `--serve`; 0 takes a free one."""
    step: int | None = None
    """The only step of a training to show; without it the last ones that fit on a page."""

    def __call__(self) -> int:
        with registered_only():  # code that the folder names is not run
            return self._view()

    def _view(self) -> int:
        for option, wanted in {"--serve": self.serve, "--transcript": self.transcript}.items():
            if wanted and self.out is not None:
                raise UserError(f"{option} shows a run and writes no file: leave out --out")
        if self.serve and (self.transcript or self.episode is not None):
            raise UserError("--serve shows a run in a browser: leave out --transcript and --episode")
        require_output(self.out)
        folder = RunFolder.open(self.folder)
        if self.serve:
            return self._follow(folder)
        episodes = self._episodes(folder)
        if self.episode is not None:
            episodes = [pick("episode", self.episode, {episode.id: episode for episode in episodes})]
        if self.transcript:
            show(*map(transcript, episodes), end="")
            return 0
        show(page(folder, episodes, self.out))
        return 0

    def _follow(self, folder: RunFolder) -> int:
        with Following(folder, self.port, lambda: _html(folder, self._episodes(folder))) as server:
            show(f"{folder.path} at {server.url} until Ctrl-C")
            with suppress(KeyboardInterrupt):
                server.serve_forever()
        return 0

    def _episodes(self, folder: RunFolder) -> list[Episode]:
        return self._of_training(folder) if folder.config["kind"] == "train" else list(folder.episodes())

    def _of_training(self, folder: RunFolder) -> list[Episode]:
        """The episodes of the steps to show, grouped by step. UserError without episodes."""
        steps, groups = 0, list[list[Episode]]()
        for step, group in groupby(folder.episodes(), lambda episode: episode.step):
            steps += 1
            if self.step in (None, step):
                groups.append([replace(episode, organization=f"step {step}") for episode in group])
            while self.episode is None and len(groups) > 1 and sum(map(len, groups)) > MOST_EPISODES:
                groups.pop(0)
        if not groups:
            known = f" of step {self.step}: it has {steps} others" if steps else ": only rollouts are recorded"
            raise UserError(f"{folder.path} has no episodes{known}")
        if self.step is None and len(groups) < steps:
            show(f"orgthink: the last {len(groups)} of {steps} steps; others with --step N", error=True)
        return [episode for group in groups for episode in group]


def page(folder: RunFolder, episodes: list[Episode], out: Path | None = None) -> Path:
    """Write the page of a run's episodes and return where it is."""
    out = out or folder.path / "view.html"
    write_whole(out, _html(folder, episodes).encode(errors="replace"))  # a folder name may not be UTF-8
    return out


def _html(folder: RunFolder, episodes: list[Episode]) -> str:
    """The page of a run's episodes, in the order of its plan if it is known."""
    summary = None
    if folder.config["kind"] == "eval":
        with suppress(UserError):  # a task or an organization that is not installed here
            resolved = recorded(folder)
            episodes = resolved.in_order(episodes)
            summary = resolved.summary(episodes)  # with the organizations' own measures
    return render(episodes, title=folder.path.resolve().name, summary=summary, notes=conditions(folder))
