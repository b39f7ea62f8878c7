"""One attempt of an organization at a problem: a session from start to end, and the episode it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from orgthink.record.episode import CancelSource, Episode, Problem, StopReason, episode_id
from orgthink.runtime.agent import Backing, Result, Watcher
from orgthink.runtime.approval import Approve
from orgthink.runtime.budget import BudgetExhausted, Limits
from orgthink.runtime.deadline import DeadlineMissed, within
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.util.concurrency import first_error
from orgthink.util.errors import ErrorKind, Failure


async def attempt(
    organization: Organization,
    problem: Problem,
    default: Backing,
    *,
    roles: Mapping[str, Backing] | None = None,
    limits: Limits | None = None,
    sample: int = 0,
    watch: Watcher | None = None,
    since: float = 0.0,
    cancelled: Callable[[Episode], object] | None = None,
    broken: Callable[[Episode], object] = lambda episode: None,
    approve: Approve | None = None,
) -> Episode:
    """Run the organization on the problem. Failures and limits end up in the episode; bugs are raised.

    `approve` decides about every fork before it begins. If the caller's task is cancelled, `cancelled` gets the
    episode; if a bug ends it, `broken` gets the episode before the bug is raised: its tokens were paid. `since` is the
    seconds that an attempt which continues from a record has taken before.
    """
    limits = limits or Limits()
    session = Session(
        problem, default, roles=roles, limits=limits, sample=sample, watch=watch, since=since, approve=approve
    )
    end = _End()
    try:
        # The session itself gives whatever it ends one grace period; the second is never reached.
        await within(limits.episode_seconds, 2 * limits.grace, _run(organization, session, end))
    except DeadlineMissed:
        end.stop, end.cancel, end.answer = StopReason.DEADLINE, CancelSource.LIMIT, session.so_far()
    except asyncio.CancelledError as stray:
        task = asyncio.current_task()
        if task is None or not task.cancelling():  # the work was cancelled, not the caller
            _tell(broken, organization, session, end)
            raise RuntimeError("the organization cancelled itself, but its episode was not ended") from stray
        end.stop, end.cancel, end.answer = StopReason.CANCELLED, CancelSource.OPERATOR, session.so_far()
        if cancelled is not None:
            cancelled(_episode(organization, session, end))
        raise
    except Exception:
        _tell(broken, organization, session, end)
        raise
    return _episode(organization, session, end)


def _tell(broken: Callable[[Episode], object], organization: Organization, session: Session, end: _End) -> None:
    """Pass on an episode that a bug ended, unless the bug prevents that."""
    end.stop = StopReason.ERROR
    with suppress(Exception):  # it would hide the bug
        broken(_episode(organization, session, end))


class WrongReturn(TypeError):
    """An organization returned something other than a text: a bug, which ends one episode."""


class _End:
    """How an episode ended, filled in on the way."""

    answer: str | None = None
    stop = StopReason.DONE
    cancel: CancelSource | None = None
    error: str | None = None
    error_kind: ErrorKind | None = None


async def _run(organization: Organization, session: Session, end: _End) -> None:
    try:
        with first_error():  # a bug in a forked task is raised as itself
            answer = await session.run(lambda: organization.run(session.problem, session))
        if not isinstance(answer, str | None):
            what = f"a {type(answer).__name__}" + (", whose text is its .text" if isinstance(answer, Result) else "")
            raise WrongReturn(
                f"{organization.name}: run() returned {what}: it must return the text of the answer, or None"
            )
        end.answer = answer
    except (Failure, BudgetExhausted) as error:
        end.stop = StopReason.ERROR if isinstance(error, Failure) else StopReason.BUDGET
        end.error, end.error_kind = str(error), error.kind
        for root in session.agents[:1]:
            if isinstance(error, BudgetExhausted):
                root.exhausted, end.answer = error.exhausted, session.so_far()


def _episode(organization: Organization, session: Session, end: _End) -> Episode:
    root = session.agents[0] if session.agents else session.controller()
    root.ended(end.stop, end.answer)
    gone = session.unavailable  # an attempt without one of its engines has failed, whatever it came to
    return Episode(
        id=episode_id(session.problem, organization.name, session.sample),
        problem=session.problem,
        organization=organization.name,
        capacity=session.capacity,
        traces=tuple(agent.trace() for agent in session.agents),
        sample=session.sample,
        answer=end.answer,
        format_faults=session.faults,
        stop=StopReason.ERROR if gone else root.stop or end.stop,
        cancel=end.cancel,
        error=gone or end.error,
        error_kind=ErrorKind.ENGINE if gone else end.error_kind,
        seconds=session.clock(),
    )
