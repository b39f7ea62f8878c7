"""A draft of the claims about ParaManager on SmolLM2; none is registered before the gate is passed.

`papers.paramanager_simulation` says what is possible: the best routing solves 72 % of the problems and the best fixed
workflow 45 %. At three and four parts, the path of the best routing is 0.85 of the serial form's, as in both forms the
manager writes each call itself. So the claim about parallel calls is about rounds. In problems with dates, a calendar
that is called by chance adds 9 points, and one that is called for each date 31.
"""

from __future__ import annotations

from papers.claims import Rows
from papers.conditions import MARGIN, PATH, SOLVED, Claims, Condition, Value, condition, gap, ratio
from papers.outcomes import Outcome

ROUNDS: Value = lambda one: float(one.rounds or 0)  # noqa: E731


def several(outcomes: list[Outcome]) -> list[Outcome]:
    """Those of problems with three or four parts: their ids begin with the number."""
    return [one for one in outcomes if int(one.problem.rpartition("/")[2][0]) >= 3]


def learned(found: Rows) -> list[Condition]:
    """(a) RL learns to route: more is solved than after fine-tuning on random routing."""
    text = "solved after - before is at least 0.05, lower end above 0"
    return [condition(text, gap(found["main"], found["before"], SOLVED), 0.05, 0.0)]


def organized(found: Rows) -> list[Condition]:
    """(b) It solves more than the best fixed workflow, which may make any number of calls, and than each member."""
    others = {label: found[label] for label in ("workflow", *MEMBERS)}
    text = "solved - that of {} is at least 0.05, lower end above 0"
    return [
        condition(text.format(label), gap(found["main"], other, SOLVED), 0.05, 0.0) for label, other in others.items()
    ]


def transferred(found: Rows) -> list[Condition]:
    """(c) It uses a member that it was never trained with, by its description."""
    team = found["dates-calendar"]
    text = "solved - that {} is at least {}, lower end above 0"
    return [
        condition(text.format("without it", 0.15), gap(team, found["dates"], SOLVED), 0.15, 0.0),
        condition(text.format("with another description", 0.05), gap(team, found["dates-unlike"], SOLVED), 0.05, 0.0),
    ]


def parallel(found: Rows) -> list[Condition]:
    """(d) At three and four parts it needs fewer rounds than the serial form, which is trained as well, and a shorter
    path, at about the same accuracy."""
    main, serial = several(found["main"]), several(found["serial"])
    rounds, path, solved = ratio(main, serial, ROUNDS), gap(main, serial, PATH), gap(main, serial, SOLVED)
    return [
        condition(
            "rounds ÷ those of the serial form are at most 0.65, upper end below 0.8", rounds, 0.65, 0.8, least=False
        ),
        condition("path - that of the serial form is below 0, upper end too", path, 0, 0, least=False),
        condition(
            f"solved - that of the serial form is at least -0.02, lower end above -{2 * MARGIN}",
            solved,
            -0.02,
            -2 * MARGIN,
        ),
    ]


MEMBERS = ("calculator", "speller", "sandbox", "archive", "smollm2")
CLAIMS = Claims({"a": learned, "b": organized, "c": transferred, "d": parallel}, (0.0, 0.6), ("vote",))
