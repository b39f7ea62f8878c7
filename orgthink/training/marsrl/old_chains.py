"""Reads the chains of older checkpoints, which were no episodes yet (up to commit a46cad4).

They held only the groups of the current stage and the text of their inputs. The outputs from which these were made are
rebuilt without tokens: later stages depend on nothing but their visible text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orgthink.grammar.solution import after_thinking
from orgthink.grammar.verdict import VerdictForm
from orgthink.training.marsrl.streams import STREAMS, role_of

Json = dict[str, Any]

ROOT = "controller"


def as_episodes(data: Any, form: VerdictForm) -> Any:
    """The JSON values of today's form; values of another form are returned as they are."""
    try:
        old = any("groups" in chain for chain in data["chains"])
        return {**data, "chains": [_episode(chain, form) for chain in data["chains"]]} if old else data
    except (KeyError, TypeError, AttributeError, IndexError):
        return data  # validation says what is wrong with it


def _episode(chain: Json, form: VerdictForm) -> Json:
    outputs: dict[str, Json] = {}
    for number, group in enumerate(chain["groups"]):
        source = ".".join([str(number), *["0"] * (chain["stage"] - 1)]) if chain["stage"] else ""
        outputs.update(_sources(group["asked"], source, form))
        for i, member in enumerate(group["members"]):
            outputs[f"{source}.{i}" if source else str(i)] = _output(member)
    by_stage = sorted(outputs, key=lambda place: place.count("."))
    times = [span[end] for one in outputs.values() for span in one["spans"] for end in ("start", "end") if span[end]]
    began = min(times, default=0.0)
    seconds = max(times, default=0.0) - began
    edges = [{"kind": kind, "key": place, "child": f"{ROOT}/{place}", "at": 0} for place, kind in _edges(by_stage)]
    root = {"agent": ROOT, "role": ROOT, "parent": None, "spans": [], "edges": edges, "end": seconds}
    traces = [{**_since(outputs[place], began), "agent": f"{ROOT}/{place}", "parent": ROOT} for place in by_stage]
    return {
        "id": f"{chain['problem']['id']}|marsrl|{chain['number']}",
        "problem": chain["problem"],
        "organization": "marsrl",
        "capacity": len(outputs),
        "traces": [root, *traces],
        "sample": chain["number"],
        "seconds": seconds,
    }


def _edges(places: list[str]) -> Iterator[tuple[str, str]]:
    """Each stage is forked, then joined."""
    for depth in dict.fromkeys(place.count(".") for place in places):
        for kind in ("fork", "join"):
            yield from ((place, kind) for place in places if place.count(".") == depth)


def _output(member: Json) -> Json:
    """The trace of a member."""
    trace = member["trace"]
    text = "".join(span["text"] for span in trace["spans"] if span["origin"] != "prompt")
    returned = after_thinking(text, trace["stop"] == "done") or None
    if trace["stop"] == "done":
        return trace | {"returned": returned, "status": "no_return" if returned is None else "ok"}
    over = trace["stop"] == "length" and member["finished"]
    return trace | {"returned": returned, "stop": "budget" if over else trace["stop"]}


def _sources(group_input: Json, source: str, form: VerdictForm) -> dict[str, Json]:
    """The outputs from which an input was made, by place."""
    if not source:
        return {}
    if role_of(group_input["stream"]) == "verifier":
        return {source: _text_alone(source, group_input["solution"])}
    report = f"{group_input['report']}\n{form.field}: {form.wrong[0]}"
    solved = source.rpartition(".")[0]
    return {solved: _text_alone(solved, group_input["solution"]), source: _text_alone(source, report)}


def _text_alone(place: str, text: str) -> Json:
    prompt = {"origin": "prompt", "text": "", "tokens": 0, "token_ids": [], "start": None, "end": None}
    return {"role": role_of(STREAMS[place.count(".")]), "spans": [prompt], "returned": text}


def _since(trace: Json, began: float) -> Json:
    """The trace in seconds since the chain began."""
    spans = [
        span | {end: None if span[end] is None else span[end] - began for end in ("start", "end")}
        for span in trace["spans"]
    ]
    times = [span["end"] for span in spans if span["end"] is not None]
    starts = [span["start"] for span in spans if span["start"] is not None]
    return trace | {"spans": spans, "start": min(starts, default=0.0), "end": max(times, default=0.0)}
