"""Training rows: the tokens of one trace, with a mask of the trained ones; and batches of rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from orgthink.record.episode import Episode, Origin, Span, Trace
from orgthink.util.errors import require_at_least


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence to train on."""

    token_ids: tuple[int, ...]
    """Ids of all tokens in the model's context, in order."""
    trained: tuple[bool, ...]
    """Mask, one value per token: `True` if the model sampled it. `<JOIN-i>` is trained; the text it injects is not."""
    pairs: int = field(default=1, kw_only=True)
    """Query–response pairs that it holds."""

    def __len__(self) -> int:
        return len(self.token_ids)


def row_of(trace: Trace) -> Row:
    """The row of a trace. ValueError if a span has no token ids."""
    ids: list[int] = []
    trained: list[bool] = []
    for span in trace.spans:
        if span.token_ids is None:
            raise ValueError(f"{trace.agent}: a {span.origin} span has no token ids")
        ids.extend(span.token_ids)
        trained.extend([span.origin is Origin.SAMPLED] * len(span.token_ids))
    return Row(tuple(ids), tuple(trained))


@dataclass(frozen=True, slots=True)
class PolicyRow(Row):
    """A sampled sequence for policy optimization."""

    logprobs: tuple[float, ...]
    """Log-probability of each token under the policy that sampled it; 0 for untrained tokens."""
    advantage: float
    """Advantage of all trained tokens."""
    temperature: float
    """Temperature at which the tokens were sampled."""
    episode: str
    """Id of the episode."""
    agent: str
    """Name of the agent that sampled the row."""
    role: str
    """Role of that agent, such as `worker` or `verifier`."""
    group: str
    """Id of the group, that is, of the problem. Minibatches never split a group."""
    age: tuple[int, ...]
    """Number of updates of the sampler since each token was sampled; 0 for untrained tokens."""
    weight: float = 1.0
    """Weight of each trained token in the loss. `weighted` sets it for the rows of a minibatch."""
    old: tuple[float, ...] | None = None
    """Log-probability of each token in the denominator of its ratio while it is fresh; `None`: `logprobs`."""
    positive: bool | None = None
    """Whether it was rewarded as right; `None` where only the sign of its advantage tells."""
    masked: int = 0
    """Number of sampled tokens that are not trained because they are mastered. The denominator of the loss counts
    them."""

    @property
    def name(self) -> str:
        """Name of the row in error messages."""
        return f"episode {self.episode}, {self.agent}"


def policy_rows(
    episode: Episode,
    advantage: float,
    trained: Callable[[Trace], bool] = lambda trace: True,
    version: int | None = None,
) -> list[PolicyRow]:
    """One row for each trained trace with sampled tokens. For `version` and ValueError see `policy_row`."""
    names = {"episode": episode.id, "group": episode.problem.id}
    right = episode.grade.all_correct if episode.grade is not None else None
    return [
        policy_row(trace, **names, advantage=advantage, version=version, positive=right)
        for trace in episode.traces
        if trained(trace) and any(span.origin is Origin.SAMPLED for span in trace.spans)
    ]


def policy_row(
    trace: Trace,
    *,
    episode: str,
    group: str,
    advantage: float,
    version: int | None = None,
    positive: bool | None = None,
) -> PolicyRow:
    """The row of a trace. `episode` and `group` are the ids of its episode and its problem. `positive` is whether it
    was rewarded as right.

    `version` is the version of the sampler's newest weights; ages are relative to it, and 0 without it. ValueError
    that names the trace if no row can be made:

    - The trace has no sampled span, or one lacks ids, log-probabilities or sampling settings.
    - A span was sampled greedily or from a truncated distribution, which biases the importance ratio.
    - Spans were sampled at different temperatures.
    - The version of a span is not a number or is newer than `version`.
    """
    name = f"episode {episode}, {trace.agent}"
    logprobs: list[float] = []
    age: list[int] = []
    temperatures = set()
    for span in trace.spans:
        if span.origin is not Origin.SAMPLED:
            logprobs.extend([0.0] * span.tokens)
            age.extend([0] * span.tokens)
            continue
        if span.token_ids is None or span.logprobs is None or span.sampling is None:
            raise ValueError(f"{name}: a sampled span lacks ids, log-probabilities or settings to train on")
        if span.sampling.top_p < 1:
            raise ValueError(f"{name}: sampled with top_p {span.sampling.top_p}, which biases the ratio: use top_p 1")
        logprobs.extend(span.logprobs)
        age.extend([0 if version is None else _age(span, version, name)] * span.tokens)
        temperatures.add(span.sampling.temperature)
    if not temperatures:
        raise ValueError(f"{name}: it sampled nothing to train on")
    if len(temperatures) > 1 or not min(temperatures) > 0:
        raise ValueError(f"{name}: sampled at temperatures {sorted(temperatures)}: use a single one above 0")
    row, temperature = row_of(trace), temperatures.pop()
    # No trained token depends on the text that was injected last.
    end = 1 + max((at for at, trained in enumerate(row.trained) if trained), default=-1)
    return PolicyRow(
        row.token_ids[:end],
        row.trained[:end],
        tuple(logprobs[:end]),
        advantage,
        temperature,
        episode,
        trace.agent,
        trace.role,
        group,
        tuple(age[:end]),
        positive=positive,
    )


def _age(span: Span, version: int, name: str) -> int:
    """Number of updates from the weights that sampled a span to `version`."""
    sampled_by = span.policy_version or ""
    if not (sampled_by.isascii() and sampled_by.isdigit()):
        raise ValueError(f"{name}: sampled by version {span.policy_version}, which is not a number of updates")
    if int(sampled_by) > version:
        raise ValueError(f"{name}: sampled by version {sampled_by}, which is newer than the newest version, {version}")
    return version - int(sampled_by)


def untrained(row: PolicyRow, places: Container[int]) -> PolicyRow:
    """The row with the tokens at these places masked: they stay in the context but are not trained."""
    known = enumerate(zip(row.trained, row.logprobs, row.age, strict=True))
    trained, logprobs, age = zip(*[(False, 0.0, 0) if at in places else token for at, token in known], strict=True)
    old = row.old and tuple(0.0 if at in places else p for at, p in enumerate(row.old))
    return replace(row, trained=trained, logprobs=logprobs, age=age, old=old)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the stream of batches."""

    epoch: int = 0
    """Index of the epoch."""
    batch: int = 0
    """Index of the batch in its epoch."""

    def __post_init__(self) -> None:
        require_at_least(0, self, "epoch", "batch")


def batches(
    rows: Callable[[int, int], Iterable[Row]], seed: int, tokens: int, start: Cursor, size: int | None = None
) -> Iterator[tuple[list[Row], Cursor]]:
    """An endless stream of batches that starts at a cursor. It depends on the seed only, so a resumed run sees the same
    batches. Each batch comes with the cursor of the next one.

    Without a `size`, a batch has at most `tokens` tokens; a longer row is a batch of its own. With a `size`, each epoch
    is split evenly into batches of about `size` pairs, so that none has a row twice: of fewer pairs, each batch is the
    whole set. `rows` takes a seed and the index of an epoch, and returns its rows, which are shuffled here. A cursor
    past the end of its epoch continues with the next one.
    """
    for epoch in count(start.epoch):
        known = list(rows(seed, epoch))
        shuffled = random.Random(f"order {seed}/{epoch}").sample(known, len(known))
        ready = _cut(shuffled, tokens) if size is None else _even(shuffled, size)
        for i in range(start.batch if epoch == start.epoch else 0, len(ready)):
            yield ready[i], Cursor(epoch, i + 1)


def _even(rows: list[Row], size: int) -> list[list[Row]]:
    parts = max(1, round(sum(row.pairs for row in rows) / size))
    return [rows[i::parts] for i in range(parts)]


def _cut(rows: list[Row], tokens: int) -> list[list[Row]]:
    """Split rows into batches of at most `tokens` tokens. A longer row is a batch of its own."""
    cut: list[list[Row]] = [[]]
    used = 0
    for row in rows:
        if cut[-1] and used + len(row) > tokens:
            cut.append([])
            used = 0
        cut[-1].append(row)
        used += len(row)
    return cut
