"""Rounds, calls and costs of a manager (section 3.1 of ParaManager), read off an episode's record.

A round is a reply of the manager and the responses to its calls. A reply is what it decoded before an injection, in one
span, in several, or in none: an empty reply has a response too, that there is no call in it. The rounds end with the
one that calls `final_answer`; what the manager writes after that, or after an injection without a response, such as
the word that its rounds are used up, is its answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from orgthink.grammar.toolcall import (
    FINAL,
    RESPONSE_TAGS,
    BadCall,
    CallStatus,
    ManagerReply,
    Response,
    ToolCall,
    read_reply,
    read_responses,
)
from orgthink.record.episode import Episode, Origin, Trace

MANAGER = "manager"
"""Role of a root that calls tools in rounds."""

_KEY = re.compile(r"[1-9][0-9]*\.[1-9][0-9]*")
"""Of the fork that does a call: its round and its place in the reply, such as `2.1`."""


@dataclass(frozen=True, slots=True)
class Round:
    """A reply and the responses to its calls."""

    reply: ManagerReply
    """The manager's reply: y_t."""
    responses: tuple[Response, ...]
    """The responses in order of the calls: o_t. Empty if the episode ended before."""

    @property
    def ends(self) -> bool:
        """Whether it calls `final_answer`; its other calls are not made then."""
        return any(isinstance(call, ToolCall) and call.name == FINAL for call in self.reply.calls)


def managed(episode: Episode) -> bool:
    """Whether a manager led it."""
    return episode.root.role == MANAGER


def rounds(episode: Episode) -> tuple[Round, ...]:
    """Rounds 1 … T, in order; none without a manager."""
    found: list[Round] = []
    for reply, response in _turns(episode.root) if managed(episode) else ():
        over = RESPONSE_TAGS[0] not in response
        if reply or not over:
            found.append(Round(read_reply(reply), read_responses(response)))
        if over or found[-1].ends:
            break
    return tuple(found)


def _turns(manager: Trace) -> Iterator[tuple[str, str]]:
    """Each reply and the injection after it, which is empty after the last. An empty reply left no span."""
    reply: list[str] = []
    for span in manager.spans:
        if span.origin is Origin.SAMPLED:
            reply.append(span.text)
        elif span.origin is Origin.INJECTED:
            yield "".join(reply), span.text
            reply = []
    if reply:
        yield "".join(reply), ""


def calls(episode: Episode) -> tuple[ToolCall | BadCall, ...]:
    """All calls that the manager wrote, in order, also refused and invalid ones."""
    return tuple(call for one in rounds(episode) for call in one.reply.calls)


def executed(episode: Episode) -> list[Trace]:
    """The agents that did the executed calls, in order. Refused calls and `final_answer` have no agent."""
    traces = {trace.agent: trace for trace in episode.traces}
    return [traces[fork.child] for fork in (episode.root.forks if managed(episode) else ()) if _KEY.fullmatch(fork.key)]


def tools(episode: Episode) -> Counter[str]:
    """How often each tool was executed."""
    return Counter(agent.role for agent in executed(episode))


def unique_tools(episode: Episode) -> int:
    """|U(τ)|: different tools that were executed (Eq. 15)."""
    return len(tools(episode))


def models(episode: Episode) -> Counter[str]:
    """How often each model did a call, the default one included; calls that are done by code are left out.

    By the models' own names: the ids that a manager knows them by may differ from problem to problem.
    """
    return Counter(agent.model for agent in executed(episode) if agent.model is not None)


def statuses(episode: Episode) -> Counter[CallStatus]:
    """Statuses of all calls, refused ones included."""
    return Counter(response.status for one in rounds(episode) for response in one.responses)


def calls_per_round(episode: Episode) -> float | None:
    """Executed calls a round; `None` without rounds. The final round counts, with its `final_answer` as one call."""
    every = rounds(episode)
    return (len(executed(episode)) + any(one.ends for one in every)) / len(every) if every else None


def requested_per_round(episode: Episode) -> float | None:
    """1/T Σ n_t (Eq. 14); `None` without rounds.

    A refused call is one of the n_t: it has ν = 0, and PARSE_ERR is the response to it (Eq. 4 to 6). An action is
    either calls or `final_answer` (Eq. 3), so a round with `final_answer` has one, whatever else it calls.
    """
    every = rounds(episode)
    return sum(1 if one.ends else len(one.reply.calls) for one in every) / len(every) if every else None


def cost(episode: Episode) -> float | None:
    """C(τ) in cost units, over all agents with a known cost; `None` without any.

    A manager without forks spent nothing.
    """
    known = [trace.cost for trace in episode.traces if trace.cost is not None]
    return sum(known) if known or (managed(episode) and not episode.root.forks) else None


def trajectory_tokens(episode: Episode) -> int:
    """L(τ): length of the root's context.

    The prompt with the list of tools counts, although τ of Eq. 8 is the question, the replies and the responses.
    """
    return sum(span.tokens for span in episode.root.spans)


def recovered(episode: Episode) -> bool:
    """Whether a call failed, the manager went on for another round, and the answer is all correct; no if ungraded."""
    failed = any(r.status is not CallStatus.OK for one in rounds(episode)[:-1] for r in one.responses)
    return failed and episode.grade is not None and episode.grade.all_correct
