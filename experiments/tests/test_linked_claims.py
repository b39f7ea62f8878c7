"""Claims about countdowns that may need each other, turned the right way."""

from __future__ import annotations

from typing import Any

from experiments.asyncthink.evidence.linked_claims import linked_claims
from experiments.asyncthink.evidence.links import KINDS

BASELINES = {"alone": (0.80, 600.0), "vote-untrained": (0.81, 700.0), "fan-out": (0.30, 150.0)}
"""Right, and path."""


def number(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01, "n": 3}


def arena(ours: float = 0.82) -> dict[str, Any]:
    rows = [{"method": name, "group": "baseline", "accuracy": number(right)} for name, (right, _) in BASELINES.items()]
    gaps = [{"method": name, "accuracy": number(right - ours)} for name, (right, _) in BASELINES.items()]
    return {"tables": {"uncapped": rows}, "differences": {"uncapped": gaps}}


def kinds(**changes: Any) -> dict[str, Any]:
    methods = {
        name: {"path": number(path), "path_ratio": number(350 / path), "right_gap": number(0.82 - right)}
        for name, (right, path) in BASELINES.items()
    }
    methods["untrained"] = {"path_ratio_right": number(0.7), "right_gap": number(0.1), "divides_gap": number(0.4)}
    methods["fan-out-trained"] = {"right_gap": number(0.4)}
    methods["paid-for-concurrency"] = {"forked_gap": number(-0.6)}
    methods["asyncthink"] = {
        "forked_by_seed": [0.0, 0.0, 0.06],
        "joined_by_seed": [0.96, 0.97, 0.98],
        "divides": number(0.95),
    }
    pairs = {
        "asyncthink-sampled / untrained-sampled": {"1": {"forked_gap": number(-0.4)}},
        "alone / alone-untrained": {"divisible": {"path_ratio": number(0.95)}},
        "paid-for-concurrency / untrained": {"1": {"forked_gap": number(0.2)}},
    }
    return dict.fromkeys(KINDS, methods) | {"pairs": pairs} | changes


def decided(found: dict[str, Any], ours: float = 0.82) -> dict[str, dict[str, Any]]:
    return {claim.id: claim.row() for claim in linked_claims(arena(ours), found)}


def test_the_path_is_compared_with_the_shortest_of_the_good_baselines() -> None:
    rows = decided(kinds())
    assert "which is vote-untrained" in rows["A20"]["claim"], "it is right most often"
    assert rows["A20"]["measured"] == 0.82 - 0.81 and rows["A20"]["holds"]
    paths = ("A21", "A21 (2 chains)", "A21 (3 chains)", "A22")
    for id_ in paths:
        assert "than alone," in rows[id_]["claim"], "as right, and shorter; the fan-out is shorter still, and wrong"
        assert rows[id_]["measured"] == 350 / 600
    assert [rows[id_]["holds"] for id_ in paths] == [True, True, True, False]


AFTER_A20 = ("A21", "A21 (2 chains)", "A21 (3 chains)", "A22", "A24", "A26 (path)", "A26 (a thinker)", "A28")


def test_what_is_short_or_divided_and_wrong_does_not_count() -> None:
    assert all(decided(kinds())[id_]["holds"] for id_ in AFTER_A20 if id_ != "A22")
    rows = decided(kinds(), ours=0.77)
    assert rows["A20"]["holds"] is False
    assert not any(rows[id_]["holds"] for id_ in (*AFTER_A20, "A28 (learned)"))
    assert rows["A23"]["holds"] is False and rows["A25 (fan-out)"]["holds"], "these do not ask for it"


def test_a_kind_on_which_it_is_less_right_does_not_count() -> None:
    less = {name: {**found, "right_gap": number(-0.03)} for name, found in kinds()["3"].items()}
    rows = decided(kinds(**{"3": less}))
    assert [rows[id_]["holds"] for id_ in ("A21", "A21 (2 chains)", "A21 (3 chains)")] == [True, True, False]


def test_what_is_right_is_not_known_without_an_interval() -> None:
    unknown = arena()
    unknown["differences"] = {"uncapped": []}
    rows = {claim.id: claim.row() for claim in linked_claims(unknown, kinds())}
    assert {rows[id_]["holds"] for id_ in ("A20", *AFTER_A20, "A28 (learned)")} == {None}
    assert rows["A25 (fan-out)"]["holds"]


def test_every_training_has_to_leave_forks_out_and_to_join_them() -> None:
    rows = decided(kinds())
    assert rows["A23"]["measured"] == 0.06 and rows["A23"]["holds"] is False
    assert rows["A24"]["measured"] == 0.96 and rows["A24"]["holds"] is True
    assert decided({})["A23"]["holds"] is None, "nothing was measured"


def test_differences_are_those_of_reinforcement_learning_and_of_the_other_reward() -> None:
    rows = decided(kinds())
    for id_ in ("A26 (path)", "A26 (a thinker)", "A26 (accuracy)", "A26 (one chain)", "A28 (learned)"):
        assert rows[id_]["holds"], id_
    assert rows["A26 (one chain)"]["measured"] == -0.4
    assert rows["A27"]["measured"] == 0.6 and rows["A27"]["holds"] and rows["A27 (learned)"]["measured"] == 0.2
    assert rows["A25 (fan-out)"]["holds"] and rows["A25 (fan-out-trained)"]["holds"]


def test_a_thinker_that_learned_as_much_refutes_it() -> None:
    pairs = kinds()["pairs"] | {"alone / alone-untrained": {"divisible": {"path_ratio": number(0.7)}}}
    rows = decided(kinds(pairs=pairs))
    assert rows["A26 (path)"]["holds"] and rows["A26 (a thinker)"]["holds"] is False
    assert "0.69" in rows["A26 (a thinker)"]["refuted_if"]
    assert decided(kinds(pairs={}))["A26 (a thinker)"]["holds"] is None
