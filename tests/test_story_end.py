"""What `orgthink run` says at the end."""

from __future__ import annotations

import pytest

from orgthink.cli.run import MOST_FAULTS, as_text
from orgthink.record.episode import Episode, FormatError, FormatFault, Problem, StopReason, Trace


@pytest.mark.parametrize("count", [MOST_FAULTS, MOST_FAULTS + 30])
def test_format_errors_are_named_up_to_a_number(count: int) -> None:
    faults = tuple(FormatFault(FormatError.MALFORMED_TAG, f"agent-{i}", i) for i in range(count))
    root = Trace("organizer", "organizer", None, (), stop=StopReason.DONE)
    problem = Problem("p", "free", "why?")
    episode = Episode("p|a|0", problem, "asyncthink", 2, (root,), format_faults=faults)
    line = as_text(episode).splitlines()[-1]
    assert line.count("MALFORMED_TAG") == MOST_FAULTS
    assert line.endswith("30 more format errors") == (count > MOST_FAULTS)
