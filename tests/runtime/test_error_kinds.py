"""Errors are recorded by the boundary that they crossed; a budget that ran out, with its use and its limit."""

from __future__ import annotations

import re

import pytest
from scripts import play

from orgthink.engines.scripted import Turn
from orgthink.measure.accuracy import error_kinds
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, Exhausted, Status, StopReason
from orgthink.record.episode_json import dump, load
from orgthink.runtime.agent import Result
from orgthink.runtime.budget import Limits
from orgthink.util.errors import ErrorKind, Failure, ToolError

FORK = "<FORK-1> one </FORK-1> <JOIN-1>"


class Calling:
    """Code that calls a tool, which returns what it is given, or raises it."""

    name = "calling"
    roles = ()

    def __init__(self, outcome: Result | Exception) -> None:
        self.outcome = outcome

    async def run(self, problem, session):
        async def work(agent) -> Result:
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return self.outcome

        return (await session.call(session.controller(), "1", session.code("tool"), work)).text


def asyncthink(*turns: Turn, **limits: int) -> Episode:
    return play(AsyncThink(), turns, Limits(3, **limits)).episode


def test_an_engine_that_fails_a_worker_or_the_root():
    worker = asyncthink(
        Turn(FORK, when="main process"),
        Turn("so", when="Subtask: one", fails="the server is gone"),
        Turn("<ANSWER> 7 </ANSWER>", when="</JOIN-1>"),
    )
    assert (worker.error, worker.error_kind, worker.root.error_kind) == (None, None, None)
    assert (worker.traces[1].error, worker.traces[1].error_kind) == ("the server is gone", ErrorKind.ENGINE)
    root = asyncthink(Turn("so", fails="the server is gone"))
    assert root.error_kind is root.root.error_kind is ErrorKind.ENGINE
    assert error_kinds(worker) == error_kinds(root) == {ErrorKind.ENGINE}


@pytest.mark.parametrize(
    ("outcome", "error", "kind", "counted"),
    [
        (ToolError("no\nsandbox"), "no sandbox", ErrorKind.TOOL, {ErrorKind.TOOL}),
        (Failure("who knows"), "who knows", None, {ErrorKind.TOOL}),
        (Result("", Status.ERROR, error="exit code 1"), "exit code 1", ErrorKind.TOOL, set()),
        (Result("4"), None, None, set()),
    ],
)
def test_a_tool_that_fails_or_says_that_a_program_did(outcome, error, kind, counted):
    episode = play(Calling(outcome), []).episode
    assert (episode.traces[1].error, episode.traces[1].error_kind) == (error, kind)
    assert error_kinds(episode) == counted


@pytest.mark.parametrize(("limit", "used"), [({"forks": 0}, 0), ({"depth": 0}, 0)])
def test_a_fork_that_a_budget_forbids(limit, used):
    episode = asyncthink(Turn(FORK, when="main process"), **limit)
    ((name, allowed),) = limit.items()
    assert (episode.stop, episode.error_kind) == (StopReason.BUDGET, ErrorKind.BUDGET)
    assert episode.root.exhausted == Exhausted(name, used, allowed)
    assert error_kinds(episode) == {ErrorKind.BUDGET}


@pytest.mark.parametrize("limits", [{"max_episode_tokens": 4}, {"max_tokens": 4}])
def test_whom_a_budget_of_tokens_cuts_off(limits):
    episode = asyncthink(Turn("a b c d e f"), **limits)
    assert (episode.root.stop, episode.root.error) == (StopReason.BUDGET, None)
    assert episode.root.exhausted == Exhausted("tokens", 4, 4)


def test_kinds_are_stored_and_records_without_them_are_read():
    episode = asyncthink(Turn(FORK, when="main process"), forks=0)
    line = dump(episode)
    assert b'"error_kind":"budget"' in line and b'"exhausted":{"budget":"forks","value":0.0,"limit":0.0}' in line
    assert load(line) == episode
    without = re.sub(rb'"error_kind":"budget",|"exhausted":\{[^}]*\},', b"", line)
    assert b"error_kind" not in without.replace(b'"error_kind":null', b"") and b'forks","value' not in without
    old = load(without)
    assert (old.error, old.error_kind, old.root.exhausted) == (episode.error, None, None)
