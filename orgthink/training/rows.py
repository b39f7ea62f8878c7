"""Training rows: one trace, one row of tokens, and which of them are trained."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from orgthink.episode import Episode, Origin, Span, Trace

Encode = Callable[[str], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence to train on."""

    token_ids: tuple[int, ...]
    """Everything the model saw, in order."""
    trained: tuple[bool, ...]
    """One for each token: `True` where the model sampled it, so `<JOIN-i>` is and what it brings is not."""

    def __len__(self) -> int:
        return len(self.token_ids)


def row_of(trace: Trace, encode: Encode | None = None, eos_id: int | None = None) -> Row:
    """The row of a trace. Spans without ids (a teacher's) are encoded one by one, as the runtime would.

    `eos_id` is appended as a trained token: teachers end their texts. ValueError if ids are missing.
    """
    ids: list[int] = []
    trained: list[bool] = []
    for span in trace.spans:
        span_ids = span.token_ids
        if span_ids is None:
            if encode is None:
                raise ValueError(f"{trace.agent}: a {span.origin} span has no token ids and there is no tokenizer")
            span_ids = encode(span.text)
        ids.extend(span_ids)
        trained.extend([span.origin is Origin.SAMPLED] * len(span_ids))
    if eos_id is not None:
        ids.append(eos_id)
        trained.append(True)
    return Row(tuple(ids), tuple(trained))


@dataclass(frozen=True, slots=True)
class PolicyRow(Row):
    """A sampled sequence to learn a policy from."""

    logprobs: tuple[float, ...]
    """One for each token, under the policy that sampled it; 0 where nothing is trained."""
    advantage: float
    """Of the episode, shared by all its trained tokens."""
    temperature: float
    """At which its tokens were drawn."""
    episode: str
    """Id of the episode."""
    agent: str
    """Who sampled it."""
    role: str
    """Which part that agent plays, such as `worker` or `verifier`."""
    group: str
    """Id of the problem: minibatches are cut between groups."""
    age: tuple[int, ...]
    """One for each token: how many updates of the sampler ago it was drawn; 0 where nothing is trained."""
    weight: float = 1.0
    """Of each of its trained tokens in the loss; set by `weighted` when it is known with which rows it is trained."""
    old: tuple[float, ...] | None = None
    """One for each token: the log-probability that its importance ratio is relative to while it is fresh; `None`: the
    sampler's."""
    positive: bool | None = None
    """Whether it was rewarded as right; `None` where only the sign of its advantage tells."""
    masked: int = 0
    """Sampled tokens that are not trained because they are mastered; the denominator of the loss counts them."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"episode {self.episode}, {self.agent}"


def policy_rows(
    episode: Episode,
    advantage: float,
    trained: Callable[[Trace], bool] = lambda trace: True,
    version: int | None = None,
) -> list[PolicyRow]:
    """One row for each trained trace that sampled anything. Ages and ValueError as `policy_row` says."""
    names = {"episode": episode.id, "group": episode.problem.id}
    right = None if episode.grade is None else episode.grade.all_correct
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
    """The row of a trace that sampled something, of the episode and the problem with these ids. `positive` is whether
    it was rewarded as right.

    `version` is that of the sampler's newest weights, from which the ages of tokens count; without it they are 0.
    ValueError that names the trace if a sampled span has no ids, no log-probabilities or no settings, or was drawn
    greedily or from a truncated distribution, which biases the importance ratio, or at another temperature than the
    trace's other spans, or by weights whose version is no number or newer than `version`.
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
            raise ValueError(f"{name}: drawn with top_p {span.sampling.top_p}, which biases the ratio: train with 1")
        logprobs.extend(span.logprobs)
        age.extend([0 if version is None else _age(span, version, name)] * span.tokens)
        temperatures.add(span.sampling.temperature)
    if not temperatures:
        raise ValueError(f"{name}: it sampled nothing to train on")
    if len(temperatures) > 1 or not min(temperatures) > 0:
        raise ValueError(f"{name}: drawn at temperature {sorted(temperatures)}: train with one, above 0")
    row, temperature = row_of(trace), temperatures.pop()
    end = 1 + max(
        (at for at, trained in enumerate(row.trained) if trained), default=-1
    )  # what it was told last is seen by no token
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
    """Updates between the weights that drew a span and the newest."""
    drawn_by = span.policy_version or ""
    if not (drawn_by.isascii() and drawn_by.isdigit()):
        raise ValueError(f"{name}: drawn by version {span.policy_version}, which is no number to count updates from")
    if int(drawn_by) > version:
        raise ValueError(f"{name}: drawn by version {drawn_by}, which is newer than the newest, {version}")
    return version - int(drawn_by)


def untrained(row: PolicyRow, places: Container[int]) -> PolicyRow:
    """The row whose tokens at these places are seen but not trained."""
    known = enumerate(zip(row.trained, row.logprobs, row.age, strict=True))
    tokens = [(False, 0.0, 0) if at in places else token for at, token in known]
    trained, logprobs, age = zip(*tokens, strict=True)
    old = row.old and tuple(0.0 if at in places else p for at, p in enumerate(row.old))
    return replace(row, trained=trained, logprobs=logprobs, age=age, old=old)
