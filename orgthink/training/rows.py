"""Training rows: one trace, one row of tokens, and which of them are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orgthink.episode import Episode, Origin, Trace

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
    group: str
    """Id of the problem: minibatches are cut between groups."""


def policy_rows(episode: Episode, advantage: float) -> list[PolicyRow]:
    """One row for each trace that sampled anything.

    ValueError that names the trace if a sampled span has no ids, no log-probabilities or no settings, or was drawn
    greedily or from a truncated distribution, which biases the importance ratio, or at another temperature than the
    trace's other spans.
    """
    rows = []
    for trace in episode.traces:
        sampled = [span for span in trace.spans if span.origin is Origin.SAMPLED]
        if not sampled:
            continue
        name, problem = f"episode {episode.id}, {trace.agent}", episode.problem.id
        for span in sampled:
            if span.token_ids is None or span.logprobs is None or span.sampling is None:
                raise ValueError(f"{name}: a sampled span lacks ids, log-probabilities or settings to train on")
            if span.sampling.top_p < 1:
                raise ValueError(
                    f"{name}: drawn with top_p {span.sampling.top_p}, which biases the ratio: train with 1"
                )
        row = row_of(trace)
        logprobs: list[float] = []
        for span in trace.spans:
            logprobs.extend(span.logprobs if span.origin is Origin.SAMPLED else [0.0] * span.tokens)  # type: ignore[arg-type]
        temperatures = {span.sampling.temperature for span in sampled if span.sampling}
        temperature = min(temperatures)
        if len(temperatures) > 1 or not temperature > 0:
            raise ValueError(f"{name}: drawn at temperature {sorted(temperatures)}: train with one, above 0")
        rows.append(
            PolicyRow(
                row.token_ids, row.trained, tuple(logprobs), advantage, temperature, episode.id, trace.agent, problem
            )
        )
    return rows
