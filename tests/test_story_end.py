"""What `orgthink run` says at the end."""

from __future__ import annotations

import pytest

from orgthink.cli.run import MOST_FAULTS, tell
from orgthink.record.episode import Episode, FormatError, FormatFault, Problem, StopReason, Trace


@pytest.mark.parametrize("count", [MOST_FAULTS, MOST_FAULTS + 30])
def test_format_errors_are_named_up_to_a_number(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    faults = tuple(FormatFault(FormatError.MALFORMED_TAG, f"agent-{i}", i) for i in range(count))
    root = Trace("organizer", "organizer", None, (), stop=StopReason.DONE)
    problem = Problem("p", "free", "why?")
    assert tell(Episode("p|a|0", problem, "asyncthink", 2, (root,), format_faults=faults), {}) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.count("MALFORMED_TAG") == MOST_FAULTS
    assert line.endswith("30 more format errors") == (count > MOST_FAULTS)
