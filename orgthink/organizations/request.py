"""One request and its reply: an agent thinks, answers, and is done. Organizations of such requests share this."""

from __future__ import annotations

from typing import NamedTuple

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import Dialect, read
from orgthink.grammar.solution import after_thinking, boxed, read_proposal
from orgthink.record.episode import Message, Problem, Status, StopReason
from orgthink.runtime.agent import Agent
from orgthink.runtime.session import Session

CALL = 1.0
"""Cost units of a call, however long its reply is (Table 7 of ParaManager)."""
NOTHING = "none"
"""Stands in a prompt where there is no solution yet."""


class Reply(NamedTuple):
    """A solution or a report: an agent's text after its thinking."""

    text: str
    whole: bool
    """Whether the text is complete: neither empty nor cut off."""
    agent: Agent

    @property
    def answer(self) -> str | None:
        return read_proposal(self.text, ended=True).answer

    @property
    def result(self) -> str | None:
        """What is graded: the answer, or a complete text without a marked one."""
        proposal = read_proposal(self.text, ended=True)
        return proposal.result if self.whole else proposal.answer


def new_caller(session: Session, role: str, messages: tuple[Message, ...]) -> Agent:
    """An agent for one call. Its cost is 0 until it has decoded, so an agent that never starts costs nothing."""
    agent = session.agent(role, messages)
    agent.spend(0.0)
    return agent


async def ask(session: Session, root: Agent, key: str, role: str, messages: tuple[Message, ...]) -> Reply:
    """Send a prompt to a new agent of a role and wait for its reply."""
    agent = new_caller(session, role, messages)
    result = await session.call(root, key, agent, single_reply)
    return Reply(result.text, result.status is Status.OK, agent)


async def single_reply(agent: Agent) -> str | None:
    """The work of an agent for one call: it pays for the call, and its text is its result."""
    agent.pay(CALL)
    await agent.complete()
    return visible_text(agent)


def visible_text(agent: Agent) -> str | None:
    """The text of an agent after its thinking, the part that other agents see; `None` if it is empty."""
    return after_thinking(agent.sampled, ended=agent.stop is StopReason.DONE) or None


def unmarked_answer(agent: Agent, dialect: Dialect) -> str | None:
    """The last text of an agent that ended without marking its answer, after its thinking, its last command, and the
    tag of an answer that it did not close; `None` for an empty text and for one that was cut off."""
    whole = agent.stop is StopReason.DONE and visible_text(agent) is not None
    text = after_thinking(agent.last_sampled, ended=True) if whole else ""
    commands = dialect.compile(("fork_end", "join", "join_end")).finditer(text)
    return text[max((tag.end() for tag in commands), default=0) :].rpartition(dialect.answer[0])[2].strip() or None


def boxed_answer(agent: Agent, problem: Problem) -> str | None:
    """The last boxed text of an agent after its thinking: its answer, if it ended without the tags of an answer.

    If the problem asks for several solutions: all boxed texts, one on each line. Injected text is not read.
    """
    if agent.stop is not StopReason.DONE:
        return None
    return _boxed(after_thinking(agent.sampled, ended=True), problem)


def answer_in(reply: str, problem: Problem) -> str | None:
    """The answer in a complete reply of a chat model: the last one in tags, else the boxed one."""
    text = after_thinking(reply, ended=True)
    answers = [part.text.strip() for part in read(text) if isinstance(part, Answer)]
    return answers[-1] if answers else _boxed(text, problem)


def _boxed(text: str, problem: Problem) -> str | None:
    found = boxed(text)
    return "\n".join(found if problem.required > 1 else found[-1:]) if found else None


def answered(answer: str | None, draft: Reply, session: Session) -> str | None:
    """The answer. A missing answer is a format error of the draft's author, unless its engine failed."""
    if answer is None and draft.agent.error is None:
        session.unanswered(draft.agent)
    return answer
