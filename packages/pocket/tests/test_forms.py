"""Forms of an organizer's lesson: the same work, with results that arrive at other moments."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import islice

import pytest
from orgthink_pocket.base.forms import FORKS, traces
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI, CountdownMini

from orgthink.record.episode import Origin, Trace

SMALL = CountdownMini("countdown-mini", replace(COUNTDOWN_MINI.size, given=4, required=2, offered=2))
PROBLEMS = list(islice(SMALL.problems("train", 0), 24))
CAPACITY = 4
_TAG = re.compile(r"</?(FORK|JOIN)-(\d)>")


def written(form: str, problem) -> list[Trace]:
    return traces(form, problem, CAPACITY, random.Random(problem.id))


@pytest.mark.parametrize("form", ["sequential", "barrier", "single", "push", "two-forks"])
def test_every_answer_is_right(form):
    for problem in PROBLEMS:
        root = written(form, problem)[0]
        answer = root.text.partition("<ANSWER>")[2].partition("</ANSWER>")[0]
        assert SMALL.grade(problem, answer).all_correct, root.text


def test_the_forms_fork_the_same_parts_in_the_same_order():
    several = 0
    for problem in PROBLEMS:
        asked = [
            re.findall(r"<FORK-\d> (.*?) </FORK", written(form, problem)[0].text)
            for form in ("barrier", "single", "push")
        ]
        shortest = min(map(len, asked))  # one that knows enough forks no more
        assert len({tuple(one[:shortest]) for one in asked}) == 1
        several += shortest > 1
        scanned = re.findall(r"scan (\S)", written("sequential", problem)[0].text)
        assert len(set(scanned)) == len(scanned)
    assert several > 6


def test_one_form_has_a_fixed_number_of_forks():
    assert {len(written("two-forks", problem)) - 1 for problem in PROBLEMS} == {FORKS}


def test_a_barrier_joins_all_workers_at_once():
    for problem in PROBLEMS:
        active, waiting = set(), False
        for tag in re.finditer(r"<(FORK|JOIN)-(\d)>|(?<!> )scan .(?! <)", written("barrier", problem)[0].text):
            kind, key = tag[1], tag[2]
            if kind == "JOIN":
                active.remove(key)
                waiting = bool(active)
                continue
            assert not waiting, "it works although a worker is not joined"
            active |= {key} if kind == "FORK" else set()


def test_a_pushed_result_is_there_as_soon_as_its_worker_has_returned():
    early = 0
    for problem in PROBLEMS:
        root, *workers = written("push", problem)
        now, ends, element, joined = 0, {}, False, ""
        for span in root.spans[1:]:
            if span.origin is Origin.INJECTED:
                for key in re.findall(r"</JOIN-(\d)>", span.text):
                    early += key != joined
                    assert ends.pop(key) <= now, "a result came too early"
                joined = ""
                continue
            for word in span.text.split():
                assert element or all(end > now for end in ends.values()), "a result was not pushed"
                assert not joined, "it went on while it waited"
                now += 1
                match _TAG.fullmatch(word):
                    case None:
                        element = element or word == "<ANSWER>"
                    case tag if word.startswith("</"):
                        element, ends[tag[2]] = False, now + workers.pop(0).steps
                    case tag if tag[1] == "FORK":
                        element = True
                    case tag:
                        joined, now = tag[2], max(now, ends[tag[2]])
        assert not workers
    assert early > 6, "most results arrive without a Join"
