"""What an episode used: tokens, calls, seconds, cost and share of the critical path, by role."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from orgthink.measure.billing import Prices, context_tokens, dollars, reports
from orgthink.measure.latency import critical_stretches
from orgthink.measure.people import seconds_of_people, waits_for_people
from orgthink.record.episode import Episode, Origin, Trace


@dataclass(frozen=True, slots=True)
class Usage:
    """What the agents of one role used; one row of the table."""

    role: str
    """`organizer`, `worker`, …"""
    agents: int
    """Agents that had the role, people included; everything else but `people` leaves these out."""
    calls: int
    """Times they asked an engine."""
    prompt_tokens: int
    """Tokens of their prompts, each counted once however often sent; without ids as servers say, else estimated."""
    sampled_tokens: int
    """Tokens they decoded."""
    injected_tokens: int
    """Tokens the runtime appended to their contexts; without ids estimated."""
    seconds: float
    """From start to end of each agent, waiting for other agents included, added up."""
    queued: float
    """Of these seconds, those in which their requests waited for a place at a client of ours."""
    critical_steps: int
    """Their decoding steps on the critical path."""
    share: float | None
    """Of the critical path, 0 to 1; `None` if that has no steps."""
    cost: float | None
    """Money or cost units; `None` unless it is known for every agent of the role."""
    people: float
    """Seconds that they waited for people, or that the people among them took, added up; not part of `seconds`."""
    reported: int
    """Of the calls, those of which the server reported what it bills; the next four are of these."""
    billed_input: int | None
    """Tokens that were read, cached ones included; a conversation is read again at every call."""
    billed_cached: int | None
    """Of these, tokens from the server's cache; `None` where no server says."""
    billed_output: int | None
    """Tokens that were sampled, hidden thoughts included."""
    billed_reasoning: int | None
    """Of these, thoughts; `None` where no server says."""
    dollars: float | None
    """What all calls cost, by the prices; `None` without the price of every model."""
    dollars_estimated: float | None
    """Of these, for calls that were not reported: by our own counts."""


def usage(episodes: Iterable[Episode], prices: Prices | None = None) -> list[Usage]:
    """One row a role, in the order the roles first appear."""
    traces: defaultdict[str, list[Trace]] = defaultdict(list)
    critical: Counter[str] = Counter()
    people: defaultdict[str, float] = defaultdict(float)
    for episode in episodes:
        roles = {trace.agent: trace.role for trace in episode.traces}
        waits = waits_for_people(episode)
        for trace in episode.traces:
            traces[trace.role].append(trace)
            people[trace.role] += seconds_of_people(trace, waits)
        for stretch in critical_stretches(episode):
            critical[roles[stretch.agent]] += stretch.end - stretch.start
    total = critical.total()
    return [_row(role, of_role, critical[role], total, people[role], prices) for role, of_role in traces.items()]


def sampled_tokens(episode: Episode) -> int:
    """Tokens that all agents decoded, on the critical path or not."""
    return sum(trace.steps for trace in episode.traces)


def replies(episode: Episode) -> int:
    """Replies of models, the manager's own included: the one account of cost in which all organizations are alike.

    Each request to an engine is one, so an organizer that goes on after a Join gives another reply. The paper's account
    is `orgthink.measure.orchestration.cost`.
    """
    return sum(trace.turns for trace in episode.traces if trace.model is not None)


def forks(episode: Episode) -> int:
    """Forks that models decided on; those of an organization's own code are not counted."""
    return sum(len(trace.forks) for trace in episode.traces if trace.model is not None)


def _row(role: str, agents: list[Trace], critical: int, total: int, people: float, prices: Prices | None) -> Usage:
    traces = [trace for trace in agents if trace.person is None]
    costs = [trace.cost for trace in traces]
    reported = reports(traces)
    paid = dollars(traces, prices) if prices else None
    return Usage(
        role=role,
        agents=len(agents),
        calls=sum(trace.turns for trace in traces),
        prompt_tokens=_context_tokens(traces, Origin.PROMPT),
        sampled_tokens=sum(trace.steps for trace in traces),
        injected_tokens=_context_tokens(traces, Origin.INJECTED),
        seconds=sum(trace.end - trace.start for trace in agents) - people,
        queued=sum(trace.queued for trace in traces),
        critical_steps=critical,
        share=critical / total if total else None,
        cost=None if None in costs or not costs else sum(cost for cost in costs if cost is not None),
        people=people,
        reported=len(reported),
        billed_input=_known(billed.input for billed in reported),
        billed_cached=_known(billed.cached for billed in reported),
        billed_output=_known(billed.output for billed in reported),
        billed_reasoning=_known(billed.reasoning for billed in reported),
        dollars=None if paid is None else paid.total,
        dollars_estimated=None if paid is None else paid.estimated,
    )


def _known(counts: Iterable[int | None]) -> int | None:
    """The sum of those that are known; `None` if none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _context_tokens(traces: list[Trace], origin: Origin) -> int:
    return sum(tokens for trace in traces for span, tokens in context_tokens(trace) if span.origin is origin)
