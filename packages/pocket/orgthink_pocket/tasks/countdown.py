"""`countdown-mini` and its single-solution form: countdown in the size of the pocket models.

Only the first n_s expressions are graded: so the shipped models were trained and measured.
"""

from __future__ import annotations

from orgthink.tasks.countdown import Countdown, CountdownSize

COUNTDOWN_MINI = Countdown(
    "countdown-mini", CountdownSize(largest=15, given=5, targets=(10, 60), held_out=10, guaranteed=3, offered=4)
)
"""Four different expressions of five numbers up to 15 that make a target."""
COUNTDOWN_MINI_SINGLE = Countdown(
    "countdown-mini-single",
    CountdownSize(largest=15, given=5, targets=(10, 60), held_out=10, required=1, guaranteed=3, offered=1),
    like="countdown-mini",
)
"""One expression of five numbers up to 15 that makes a target."""
