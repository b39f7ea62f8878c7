"""`orgthink import`: transcripts of models that other groups trained to think in parallel paths, as a run folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.evaluation.grading import grade
from orgthink.grammar.paths import PathDialect
from orgthink.models.hub import resolve
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Episode, Problem, likely_tokens
from orgthink.record.folder import RunFolder
from orgthink.tasks.math import MATH
from orgthink.util.errors import UserError, pick, user_input
from orgthink.util.tabular import read_rows
from orgthink.util.terminal import show
from orgthink_arena.orchestration import read_traces

DIALECTS = {
    "multiverse": PathDialect(("\n<Path>\n{}:", "</Path>"), "</Goal>", "\n<Conclusion>\n", "<Outline>"),
    "npr": PathDialect(("\n<step>\n{}:", "</step>"), "</guideline>", "\n<takeaway>\n", "<plan>"),
    "parallel-r1": PathDialect(("<Path>", "</Path>"), "<Parallel>", "</Parallel>\n<Summary>"),
    "parathinker": PathDialect(("<think{}>", "</think{}>"), "", "<summary>"),
    "threadweaver": PathDialect(("\n<Thread>\n{}:", "</Thread>"), "</Outlines>", "\n</Parallel>\n", "<Outline>"),
}
"""Published formats by name."""


@dataclass(frozen=True, kw_only=True)
class Import:
    """Read transcripts with parallel paths, or orchestration traces, into a run folder, for `orgthink measure` and
    `orgthink view`."""

    source: Annotated[Positional[Path], arg(metavar="SOURCE")]
    """File of rows with a `transcript`, a `problem` and its `answer`; or a run folder, whose agents wrote all paths in
    one text; or orchestration traces, as `orgthink export traces` writes them."""
    format: str
    """Format of the transcripts: multiverse, npr, parallel-r1, parathinker or threadweaver; or orchestration."""
    out: Path
    """New run folder."""
    tokenizer: str | None = None
    """Model whose tokenizer counts the tokens; without it three bytes are a token."""

    def __call__(self) -> int:
        traces = self.format == "orchestration"
        episodes = list(read_traces(self.source) if traces else self._transcripts())
        with RunFolder.create(self.out, "import", {"format": self.format, "source": self.source}).journal() as journal:
            journal.append(*episodes)
        show(f"{len(episodes)} episodes are in {self.out}")
        return 0

    def _transcripts(self) -> Iterator[Episode]:
        """The episodes of transcripts with parallel paths."""
        dialect, count, samples = pick("format", self.format, DIALECTS), likely_tokens, Counter[str]()
        if self.tokenizer is not None:
            with user_input():
                encode = Tokenizer(resolve(self.tokenizer, weights=False) or Path(self.tokenizer)).encode
            count = lambda text: len(encode(text))  # noqa: E731
        for problem, text, before in read_source(self.source):
            episode = dialect.episode(text, problem, self.format, samples[problem.id], count)
            yield replace(episode, answer=before.answer, grade=before.grade) if before else grade(episode, MATH)
            samples[problem.id] += 1


def read_source(source: Path) -> Iterator[tuple[Problem, str, Episode | None]]:
    """Each problem and the whole text of a model, and the episode that it comes from."""
    if source.is_dir():
        yield from ((one.problem, one.root.text, one) for one in RunFolder.open(source).episodes())
        return
    for number, row in enumerate(read_rows(source, (*MATH.columns, "transcript")), 1):
        problem, text = MATH.read(row, f"{source}, row {number}"), row.get("transcript")
        if not isinstance(text, str):
            raise UserError(f"{source}, row {number}: transcript is missing")
        yield problem, text, None
