"""Errors are counted by the boundary that they crossed, also in records that do not tell it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from manager_episodes import Call, episode_of

from orgthink.cli.table import cells
from orgthink.measure.accuracy import error_kinds
from orgthink.measure.summary import summarise
from orgthink.record.episode import Status, StopReason
from orgthink.util.errors import ErrorKind

EPISODE = episode_of([[Call(), Call("standard_reasoner", model="big")]])
BY_CODE, BY_MODEL = 1, 2
"""Places of the traces of the two calls."""


def stopped(place: int, stop: StopReason, kind: ErrorKind | None = None):
    traces = list(EPISODE.traces)
    traces[place] = replace(traces[place], stop=stop, status=Status.ERROR, error="gone", error_kind=kind)
    return replace(EPISODE, traces=tuple(traces))


@pytest.mark.parametrize(
    ("episode", "kinds"),
    [
        (EPISODE, set()),
        (stopped(BY_CODE, StopReason.ERROR), {ErrorKind.TOOL}),
        (stopped(BY_MODEL, StopReason.ERROR), {ErrorKind.ENGINE}),
        (stopped(BY_CODE, StopReason.ERROR, ErrorKind.ENGINE), {ErrorKind.ENGINE}),
        (stopped(BY_MODEL, StopReason.DEADLINE), {ErrorKind.DEADLINE}),
        (stopped(BY_MODEL, StopReason.LENGTH), set()),
        (replace(EPISODE, stop=StopReason.ERROR, error="gone"), {ErrorKind.ENGINE}),
        (replace(EPISODE, stop=StopReason.ERROR, error="gone", error_kind=ErrorKind.TOOL), {ErrorKind.TOOL}),
        (replace(stopped(BY_CODE, StopReason.BUDGET), stop=StopReason.FORMAT), {ErrorKind.BUDGET, ErrorKind.PROTOCOL}),
    ],
)
def test_who_was_stopped_at_which_boundary(episode, kinds):
    assert error_kinds(episode) == kinds
    counted = summarise([episode])["paramanager"]["error_kinds"]
    assert {kind for kind in ErrorKind if counted[kind.value]["mean"]} == kinds


def test_the_table_shows_the_kinds_that_there_are():
    assert not [name for name in cells(summarise([EPISODE]))[0] if name.endswith(" errors %") and "format" not in name]
    header, (row,) = cells(summarise([stopped(BY_CODE, StopReason.ERROR), EPISODE]))
    shown = dict(zip(header, row, strict=True))
    assert shown["tool errors %"].startswith("50") and "engine errors %" not in shown
