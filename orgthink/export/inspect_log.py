"""Episodes as the `.eval` file of Inspect (https://inspect.aisi.org.uk): a ZIP of JSON, version 2 of its log.

An episode is a sample; its score bears the name of its organization. `inspect_events` makes what happened in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from statistics import fmean
from zipfile import ZIP_DEFLATED, ZipFile

from orgthink.export.inspect_events import Json, events, moment, output, short, usage
from orgthink.export.messages import ChatTurn, turns
from orgthink.export.spans import trace_spans
from orgthink.measure.latency import critical_path
from orgthink.record.episode import Episode, StopReason
from orgthink.util.version import __version__

VERSION = 2
"""Of Inspect's log."""

_LIMITS = {"tokens": "token", "cost": "cost", "context": "context"}
"""Inspect's names of the budgets that it knows as well."""


_LONGEST_NAME = 200
"""Characters of the id of a sample, which is the name of a file."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\]")
"""Where a name ends for a ZIP, or begins anew for whoever unpacks it."""


def eval_log(episodes: Iterable[tuple[Episode, float]], run: str) -> bytes:
    """The file of a run. Each episode comes with when it began, in seconds since 1970."""
    file, log = BytesIO(), _Log(run)
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for episode, began in episodes:
            sample = log.add(episode, began)
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
        header = log.header()
        start = {name: header[name] for name in ("version", "eval", "plan")}
        archive.writestr("_journal/start.json", json.dumps(start))
        archive.writestr("summaries.json", json.dumps(log.summaries))
        archive.writestr("header.json", json.dumps(header))
    return file.getvalue()


def _member(name: str) -> str:
    """The id of a sample, which is the name of a file: one that is too long, or leads out of its folder, is changed."""
    parts = _ODD.sub("_", name).split("/")
    safe = "/".join("_" if part in ("", ".", "..") else part for part in parts)
    return name if safe == name and len(name) <= _LONGEST_NAME else f"{safe[:_LONGEST_NAME]}…{short(name)}"


@dataclass(slots=True)
class _Log:
    """What is known of a log so far."""

    run: str
    summaries: list[Json] = field(default_factory=list)
    scores: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By organization."""
    tokens: Counter[str] = field(default_factory=Counter)
    """Sampled, by model."""
    epochs: dict[str, set[int]] = field(default_factory=dict)
    """That are taken, by the id of the sample."""
    tasks: dict[str, None] = field(default_factory=dict)
    first: float | None = None
    """When the first episode began."""
    last: float = 0.0
    """When the last one ended."""

    def add(self, episode: Episode, began: float) -> Json:
        """The sample of an episode."""
        organization, problem = episode.organization, episode.problem
        name = f"{problem.id}|{organization}" + ("" if episode.step is None else f"|{episode.step}")
        name = _member(name)
        sample = _sample(episode, began, name, self._epoch(name, episode.sample + 1), self.run)
        if episode.grade is not None:
            self.scores[organization].append(episode.grade.score)
        for model, used in sample["model_usage"].items():
            self.tokens[model] += used["output_tokens"]
        self.tasks[problem.task] = None
        self.first = began if self.first is None else min(self.first, began)
        self.last = max(self.last, began + episode.seconds)
        self.summaries.append(_summary(sample))
        return sample

    def _epoch(self, name: str, wanted: int) -> int:
        """The number of an attempt; the next that is free where a server was asked the same again."""
        taken = self.epochs.setdefault(name, set())
        epoch = wanted if wanted not in taken else len(taken) + 1
        while epoch in taken:
            epoch += 1
        taken.add(epoch)
        return epoch

    def header(self) -> Json:
        number, task = len(self.summaries), "+".join(self.tasks) or "none"
        scores = [
            {
                "name": organization,
                "scorer": organization,
                "params": {},
                "metrics": {"accuracy": {"name": "accuracy", "value": fmean(found), "params": {}}},
            }
            for organization, found in self.scores.items()
        ]
        start, end = moment(self.first or 0.0), moment(self.last)
        return {
            "version": VERSION,
            "status": "success",
            "eval": {
                **{name: short(self.run, name) for name in ("eval_id", "run_id", "task_id")},
                "created": start,
                "task": task,
                "dataset": {"name": task, "samples": len(self.epochs), "sample_ids": list(self.epochs)},
                "model": max(self.tokens, key=lambda model: self.tokens[model], default="none"),
                "config": {"epochs": max(map(len, self.epochs.values()), default=1)},
                "packages": {"orgthink": __version__},
                "metadata": {"run": self.run},
            },
            "plan": {"name": "plan", "steps": [], "config": {}},
            "results": {"total_samples": number, "completed_samples": number, "scores": scores},
            "stats": {
                "started_at": start,
                "completed_at": end,
                "model_usage": {model: usage(sampled) for model, sampled in self.tokens.items()},
            },
        }


def _sample(episode: Episode, began: float, name: str, epoch: int, run: str) -> Json:
    answer, problem, root = episode.answer or "", episode.problem, episode.root
    happened, pool = events(trace_spans(episode, run=run, began=began, content=True))
    history = [{"role": turn.role, "content": turn.content} for turn in problem.history]
    broken = episode.error or "" if episode.stop is StopReason.ERROR else None
    spent = root.exhausted if root.exhausted is not None and root.exhausted.budget in _LIMITS else None
    return {
        "id": name,
        "epoch": epoch,
        "input": [*history, {"role": "user", "content": problem.text}] if history else problem.text,
        "target": "",
        "messages": [_message(turn) for turn in turns(root, episode)],
        "output": output(root.model or "none", answer, "stop" if episode.answer is not None else "unknown"),
        "scores": {} if episode.grade is None else {episode.organization: _score(episode)},
        "metadata": {
            "episode": episode.id,
            "organization": episode.organization,
            "sample": episode.sample,
            "capacity": episode.capacity,
            "agents": len(episode.traces),
            "steps": sum(trace.steps for trace in episode.traces),
            "critical_path": critical_path(episode),
            "stop": str(episode.stop),
            "format_errors": [str(fault.kind) for fault in episode.format_faults],
        },
        "events": happened,
        "events_data": {"messages": pool, "calls": []},
        "model_usage": _usage_of(episode),
        "started_at": moment(began),
        "completed_at": moment(began + episode.seconds),
        "total_time": episode.seconds,
        "uuid": short(run, episode.id),
        "error": None if broken is None else {"message": broken, "traceback": "", "traceback_ansi": ""},
        "limit": None if spent is None else {"type": _LIMITS[spent.budget], "limit": spent.limit},
    }


def _summary(sample: Json) -> Json:
    """What a list of samples shows of one."""
    large = ("messages", "output", "events", "events_data")
    error, limit = sample["error"], sample["limit"]
    return {
        **{name: value for name, value in sample.items() if name not in large},
        "error": None if error is None else error["message"],
        "limit": None if limit is None else limit["type"],
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _score(episode: Episode) -> Json:
    assert episode.grade is not None
    counts = {"correct": episode.grade.correct, "required": episode.grade.required}
    return {"value": episode.grade.score, "answer": episode.answer, "metadata": counts}


def _usage_of(episode: Episode) -> Json:
    """Tokens that each model sampled."""
    tokens: Counter[str] = Counter()
    for trace in episode.traces:
        if trace.model is not None:
            tokens[trace.model] += trace.steps
    return {model: usage(sampled) for model, sampled in tokens.items()}


def _message(turn: ChatTurn) -> Json:
    calls = [{"id": call.id, "function": call.name, "arguments": {"key": call.key}} for call in turn.calls]
    return {
        "role": turn.role,
        "content": turn.content,
        **({"tool_calls": calls} if calls else {}),
        **({"tool_call_id": turn.answers} if turn.answers is not None else {}),
        **({"model": turn.model, "source": "generate"} if turn.model is not None else {}),
    }
