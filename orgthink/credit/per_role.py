"""Credit of MarsRL: every output against the others of its own group, whose input is exactly the same (section 3.3).

A reward reaches nothing but its own output: neither the agents before it nor those after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orgthink.credit.shared import Normalise, advantages


def per_role(groups: Mapping[str, Sequence[float]], normalise: Normalise = "std") -> dict[str, tuple[float, ...]]:
    """Advantage of each output, by group. Groups in which all rewards are the same are left out.

    ValueError that names the group, if it is empty or a reward is not a number.
    """
    found: dict[str, tuple[float, ...]] = {}
    for name, rewards in groups.items():
        try:
            of_group = advantages(rewards, normalise)
        except ValueError as error:
            raise ValueError(f"group {name}: {error}") from error
        if of_group is not None:
            found[name] = of_group
    return found
