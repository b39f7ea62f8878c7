"""Claims about countdowns that may need each other, turned the right way."""

from __future__ import annotations

from typing import Any

from experiments.asyncthink.evidence.linked_claims import linked_claims

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
    methods["untrained"] = {"path_ratio": number(0.7), "right_gap": number(0.1)}
    methods["fan-out-trained"] = {"right_gap": number(0.4)}
    methods["paid-for-concurrency"] = {"forked_gap": number(-0.6)}
    methods["asyncthink-sampled"] = {"forked_gap": number(-0.1)}
    methods["untrained-sampled"] = {"forked_gap": number(-0.5)}
    never = {"forked": number(0.02), "forked_by_seed": [0.0, 0.0, 0.06]}
    always = {"forked": number(0.97), "forked_by_seed": [0.96, 0.97, 0.98], "divides": number(0.95)}
    found = {kind: methods | {"asyncthink": never if kind == "1" else always} for kind in ("1", "2 and 3", "divisible")}
    return found | {"6": found["divisible"]} | changes


def decided(found: dict[str, Any], ours: float = 0.82) -> dict[str, dict[str, Any]]:
    return {claim.id: claim.row() for claim in linked_claims(arena(ours), found)}


def test_the_path_is_compared_with_the_shortest_of_the_good_baselines() -> None:
    rows = decided(kinds())
    assert "which is vote-untrained" in rows["A20"]["claim"], "it is right most often"
    assert rows["A20"]["measured"] == 0.82 - 0.81 and rows["A20"]["holds"]
    for id_ in ("A21", "A22"):
        assert "than alone," in rows[id_]["claim"], "as right, and shorter; the fan-out is shorter still, and wrong"
        assert rows[id_]["measured"] == 350 / 600
    assert rows["A21"]["holds"] and not rows["A22"]["holds"]


def test_what_is_short_and_wrong_does_not_count() -> None:
    rows = decided(kinds(), ours=0.77)
    assert [rows[id_]["holds"] for id_ in ("A20", "A21", "A22")] == [False, False, False]


def test_every_training_has_to_leave_forks_out_and_to_fork() -> None:
    rows = decided(kinds())
    assert rows["A23"]["measured"] == 0.06 and rows["A23"]["holds"] is False
    assert rows["A24"]["measured"] == 0.96 and rows["A24"]["holds"] is True
    assert decided({})["A23"]["holds"] is None, "nothing was measured"


def test_differences_are_those_of_reinforcement_learning_and_of_the_other_reward() -> None:
    rows = decided(kinds())
    assert rows["A26 (one chain)"]["measured"] == -0.5 + 0.1 and rows["A26 (one chain)"]["holds"]
    assert rows["A27"]["measured"] == 0.6 and rows["A27"]["holds"]
    assert rows["A25 (fan-out)"]["holds"] and rows["A25 (fan-out-trained)"]["holds"] and rows["A28"]["holds"]
    assert rows["A26 (path)"]["holds"] and rows["A26 (accuracy)"]["holds"]
