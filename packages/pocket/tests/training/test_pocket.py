"""The pocket model's words and lessons."""

from itertools import islice

import pytest
from orgthink_pocket import model as pocket
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from orgthink_pocket.teachers.countdown import OPERATORS, scan

from orgthink.grammar.actions import Answer, Malformed
from orgthink.grammar.asyncthink import Injected, Keys, read
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Origin
from orgthink.tasks.expression import parse


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pocket")
    pocket.write_folder(folder)
    return Tokenizer(folder)


def test_every_lesson_is_in_the_vocabulary_and_decodes_to_its_text(tokenizer):
    unknown = pocket.vocabulary().index(pocket.UNK)
    for traces in islice(pocket.lessons(1, pocket.FORM_POOLS), 300):
        for trace in traces:
            for span in trace.spans:
                ids = tokenizer.encode(span.text)
                assert unknown not in ids, span.text
                stream = tokenizer.pieces()
                assert "".join(map(stream.piece, ids)).split() == span.text.split()
                assert len(ids) == len(span.text.split())


def test_tags_and_integers_are_one_token_however_they_are_spaced(tokenizer):
    assert tokenizer.encode("<FORK-1>12+399</FORK-1>") == tokenizer.encode(" <FORK-1> 12 + 399 </FORK-1>")
    assert len(tokenizer.encode("<JOIN-2>399</JOIN-2><ANSWER>")) == 4


def test_organizers_keep_the_protocol():
    seen = 0
    for traces in islice(pocket.lessons(2, 0), 600):
        if traces[0].role != "organizer":
            continue
        seen += 1
        prompt, *rest = traces[0].spans
        capacity = int(prompt.text.split()[1])
        protocol = Keys(capacity)
        parts = read("".join(span.text for span in rest))
        assert all(protocol.check(part) is None for part in parts if not isinstance(part, Injected))
        assert not any(isinstance(part, Malformed) for part in parts)
        assert isinstance(parts[-1], Answer) and not protocol.taken
    assert seen


def test_no_problem_with_a_held_out_target_is_a_lesson():
    held_out = COUNTDOWN_MINI.test_targets
    for traces in islice(pocket.lessons(3, 0), 2_000):
        words = traces[0].spans[0].text.split()
        if "countdown" in words:
            assert int(words[words.index("=") + 1]) not in held_out


def test_a_scan_finds_every_solution_of_three_numbers():
    for problem in islice(COUNTDOWN_MINI.problems("test", 1), 200):
        numbers, target = problem.data["numbers"], problem.data["target"]
        hits = scan(numbers, target, OPERATORS).hits
        assert all(parse(hit).value == target for hit in hits)
        assert len({parse(hit).key for hit in hits}) >= problem.required
        assert COUNTDOWN_MINI.grade(problem, " ; ".join(dict.fromkeys(hits))).correct >= problem.required - 1


def test_injected_text_stands_between_a_join_and_its_end():
    for traces in islice(pocket.lessons(4, 0), 300):
        if traces[0].role != "organizer":
            continue
        for before, span in zip(traces[0].spans, traces[0].spans[1:], strict=False):
            if span.origin is Origin.INJECTED:
                key = span.text.rsplit("</JOIN-", 1)[1].rstrip(">")
                assert before.text.endswith(f"<JOIN-{key}>")
