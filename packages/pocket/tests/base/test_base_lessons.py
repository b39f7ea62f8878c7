"""The teachers of the base are exact, their structures random, and no held-out problem occurs in a lesson."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import islice

import pytest
from orgthink_pocket.base import calling, drills, lessons, model, review
from orgthink_pocket.base.countdown import counted
from orgthink_pocket.base.family import CAPACITIES, organizer, sequential, solved
from orgthink_pocket.style import VERDICTS
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from orgthink_pocket.tasks.countdown_linked import COUNTDOWN_MINI_LINKED, SINGLE
from orgthink_pocket.tasks.parts import PARTS_MINI
from orgthink_pocket.tasks.sums import SUMS_MINI

from orgthink.grammar.actions import Answer, Fork, Join
from orgthink.grammar.asyncthink import Keys, read
from orgthink.grammar.solution import read_proposal
from orgthink.grammar.verdict import Verdict, read_report
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.tasks import TASKS
from orgthink.tasks.sudoku import SUDOKU
from orgthink.tasks.task import in_split

GRADERS = {lessons.SUMS: SUMS_MINI, lessons.PARTS: PARTS_MINI}
DIVIDED = (*lessons.MIXTURE.organizing, lessons.NAMED, lessons.LINKED)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("base")
    model.write_folder(folder, model.sized(128, 4))
    return Tokenizer(folder)


def problems(name: str, n: int, seed: int = 0) -> list[Problem]:
    if name == lessons.SEVERAL:
        rng = random.Random(seed)
        return [calling.several(rng, lessons.PARTS_OF_SEVERAL) for _ in range(n)]
    if name in (lessons.NAMED, lessons.WHOLE):
        rng = random.Random(seed)
        parts = lessons.PARTS_OF_NAMED if name == lessons.NAMED else lessons.PARTS_OF_WHOLE
        return [calling.several(rng, parts, lessons.NAMED) for _ in range(n)]
    return list(islice(_task(name).problems("train", seed), n))


def _task(name: str):
    return GRADERS.get(name) or TASKS[lessons.SUDOKU if name == lessons.ANEW else name]


def right(problem: Problem, answer: str | None) -> bool:
    return answer is not None and _task(problem.task).grade(problem, answer).all_correct


def written(trace: Trace) -> str:
    """What is sampled in a trace, and joined."""
    return "".join(span.text for span in trace.spans if span.origin is not Origin.PROMPT)


def answer_of(text: str) -> str | None:
    return read_proposal(text, ended=True).answer


@pytest.mark.parametrize("name", lessons.FAMILIES)
def test_a_thinker_alone_is_right(name):
    for problem in problems(name, 40):
        text = written(sequential(lessons.FAMILIES[name], problem))
        assert right(problem, answer_of(text)), (problem.text, text)


def test_a_scan_ends_with_the_fourth_solution():
    lengths = []
    for problem in problems(lessons.COUNTDOWN, 60):
        text = solved(lessons.FAMILIES[lessons.COUNTDOWN], problem)
        marks = [int(mark) for mark in re.findall(r"! (\d+) ", text)]
        assert marks == [1, 2, 3, 4]
        assert re.search(r"! 4 (\S+ ){7}; </think>", text)
        lengths.append(len(text.split()))
    assert sum(lengths) / len(lengths) < 260


def test_a_solution_that_is_known_is_not_counted_again():
    numbers, target = [2, 3, 5, 7, 9], 24
    _, hits = counted(numbers, target, "*+-/", wanted=9)
    text, others = counted(numbers, target, "*+-/", known=hits[:2], wanted=9)
    assert others == hits[2:]
    assert "! 3 " in text and "! 1 " not in text


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_an_organizer_is_right_and_keeps_the_rules(name, capacity):
    rng = random.Random(capacity)
    for problem in problems(name, 15, seed=capacity):
        root, *workers = organizer(lessons.FAMILIES[name], problem, capacity, rng)
        keys = Keys(capacity)
        actions = read(written(root))
        faults = [keys.check(action) for action in actions if isinstance(action, Fork | Join)]
        assert not any(faults)
        answer = next(action for action in actions if isinstance(action, Answer))
        assert right(problem, answer.text.strip()), written(root)
        assert len(workers) == sum(isinstance(action, Fork) for action in actions)


@pytest.mark.parametrize("name", DIVIDED)
def test_what_an_organizer_is_told_is_what_its_worker_returned(name):
    rng = random.Random(1)
    for problem in problems(name, 15):
        root, *workers = organizer(lessons.FAMILIES[name], problem, 4, rng)
        told = [span.text for span in root.spans if span.origin is Origin.INJECTED]
        returned = {written(worker).partition("<RETURN>")[2].partition("</RETURN>")[0].strip() for worker in workers}
        for text in told:
            assert re.sub(r"</JOIN-\d>", "", text).strip() in returned


@pytest.mark.parametrize("name", DIVIDED)
def test_structures_are_random(name):
    rng = random.Random(2)
    shapes: Counter[str] = Counter()
    for problem in problems(name, 60):
        root = organizer(lessons.FAMILIES[name], problem, 4, rng)[0]
        shapes["".join(re.findall(r"<([FJ])", written(root)))] += 1
    assert len(shapes) > 5
    assert shapes.most_common(1)[0][1] < 30


def test_whole_problems_have_as_many_countdowns_as_the_task(tokenizer):
    stream = lessons.Lessons(random.Random(0), tokenizer)
    parts = {
        name: {len(stream.problem(name).data["parts"]) for _ in range(40)} for name in (lessons.NAMED, lessons.WHOLE)
    }
    assert parts == {lessons.NAMED: {2, 3, 4, 5, 6}, lessons.WHOLE: {TASKS[lessons.NAMED].count}}


def test_a_worker_of_named_countdowns_works_on_those_that_its_organizer_names():
    rng = random.Random(5)
    for problem in problems(lessons.NAMED, 20):
        root, *workers = organizer(lessons.FAMILIES[lessons.NAMED], problem, 8, rng)
        queries = re.findall(r"<FORK-\d> (.*?) </FORK", written(root))
        assert [re.findall(r"(\w+) : scan", written(worker)) for worker in workers] == [
            query.split(" ; ") for query in queries
        ]


def test_linked_countdowns_are_taken_when_what_they_need_is_known(tokenizer):
    """A worker is given what its organizer knows, and finds the rest itself."""
    rng, given = random.Random(6), 0
    stream = lessons.Lessons(random.Random(0), tokenizer)
    for problem in (stream.problem(lessons.LINKED) for _ in range(60)):
        parts = {part["name"]: part for part in problem.data["parts"]}
        root, *workers = organizer(lessons.FAMILIES[lessons.LINKED], problem, 8, rng)
        known: set[str] = set()
        forked: dict[str, list[str]] = {}
        texts = iter(workers)
        for text in re.findall(r"\w+ : |<FORK-\d> .*? </FORK|<JOIN-\d>", written(root)):
            if text.startswith("<FORK"):
                query, own = text.split(" ", 1)[1].removesuffix(" </FORK").split(" ; "), set[str]()
                told = dict(piece.split() for piece in query if " " in piece)
                forked[text[6]] = names = [piece for piece in query if " " not in piece]
                for name in names:
                    need = parts[name]["needs"]
                    assert need is None or need in own or told[need] == str(parts[need]["left"])
                    own.add(name)
                assert set(told) <= known
                given += len(told)
                assert re.findall(r"(\w+) : ", written(next(texts))) == names
            elif text.startswith("<JOIN"):
                known.update(forked[text[6]])
            else:
                name = text.removesuffix(" : ")
                assert parts[name]["needs"] in (None, *known)
                known.add(name)
        assert known == parts.keys()
    assert given > 20
    assert {len(stream.problem(lessons.LINKED).data["parts"]) for _ in range(60)} == set(lessons.PARTS_OF_LINKED)


def test_half_of_the_linked_countdowns_need_nothing(tokenizer):
    """Else few lessons have many forks at a time."""
    stream = lessons.Lessons(random.Random(4), tokenizer)
    problems = [problem for problem in (stream.problem(lessons.LINKED) for _ in range(200)) if problem.required == 6]
    free = [problem.data["chains"] == 6 for problem in problems]
    assert 0.4 < sum(free) / len(free) < 0.75
    assert {problem.data["chains"] for problem in problems} == set(range(1, 7))


def test_what_a_name_stands_for_is_written_after_it(tokenizer):
    """In thoughts of organizers and workers, and in drills, which list first what names stand for."""
    rng, looked_up = random.Random(7), 0
    stream = lessons.Lessons(random.Random(1), tokenizer)
    for problem in (stream.problem(lessons.LINKED) for _ in range(20)):
        parts = {part["name"]: part for part in problem.data["parts"]}
        drill = drills.lookups(problem, rng)
        _, *spans = drill.spans
        stated = dict(re.findall(r"! (\w+) left (\d+) ;", spans[0].text))
        assert stated == {name: str(part["left"]) for name, part in parts.items()}
        assert {span.origin for span in spans[::2]} == {Origin.INJECTED}
        assert {span.origin for span in spans[1::2]} == {Origin.SAMPLED}
        for trace in (drill, *organizer(lessons.FAMILIES[lessons.LINKED], problem, 8, rng)):
            for name, listed, target in re.findall(r"(\w+) : ([\w ]+) = (\d+) ;", written(trace)):
                part = parts[name]
                assert int(target) == part["target"]
                values = re.findall(r"(?:([a-z]+) )?(\d+)", listed)
                assert [int(value) for _, value in values] == part["numbers"]
                assert {word: int(value) for word, value in values if word} == (
                    {part["needs"]: parts[part["needs"]]["left"]} if part["needs"] else {}
                )
                looked_up += 1
    assert looked_up > 20 * drills.LOOKUPS


def test_an_organizer_of_linked_countdowns_writes_first_what_needs_what(tokenizer):
    stream = lessons.Lessons(random.Random(3), tokenizer)
    for problem in (stream.problem(lessons.LINKED) for _ in range(20)):
        root, *workers = organizer(lessons.FAMILIES[lessons.LINKED], problem, 8, random.Random(0))
        needs = [[part["name"], *filter(None, [part["needs"]])] for part in problem.data["parts"]]
        first = "".join(f" {' '.join(names)} ;" for names in needs)
        assert written(root).startswith(first)
        for text in (*map(written, workers), solved(lessons.FAMILIES[lessons.LINKED], problem)):
            assert first.strip() not in text, "only who divides needs it"


def test_an_answer_to_linked_countdowns_names_them(tokenizer):
    """In the order in which they were solved."""
    rng, orders = random.Random(8), set[tuple[str, ...]]()
    stream = lessons.Lessons(random.Random(2), tokenizer)
    for problem in (stream.problem(lessons.LINKED) for _ in range(20)):
        root, *_ = organizer(lessons.FAMILIES[lessons.LINKED], problem, 8, rng)
        answer = answer_of(written(root))
        named = dict(line.split(" : ") for line in answer.split(" ; "))
        for part in problem.data["parts"]:
            single = SINGLE.problem(part["numbers"], part["target"])
            assert SINGLE.grade(single, named[part["name"]]).all_correct
        assert COUNTDOWN_MINI_LINKED.grade(problem, answer).all_correct
        orders.add(tuple(named))
    assert len(orders) > 10


def test_an_organizer_of_countdown_stops_when_four_are_found():
    rng = random.Random(3)
    early = 0
    for problem in problems(lessons.COUNTDOWN, 60):
        text = written(organizer(lessons.FAMILIES[lessons.COUNTDOWN], problem, 4, rng)[0])
        early += text.count("<FORK-") > text.count("<JOIN-")
        assert "found 4 <FORK" not in text and "found 4 scan" not in text
    assert early


def test_a_chain_is_never_worked_on_by_two():
    rng = random.Random(4)
    chains = [problem for problem in problems(lessons.PARTS, 80) if problem.data["chained"]]
    assert chains
    for problem in chains:
        text = written(organizer(lessons.FAMILIES[lessons.PARTS], problem, 4, rng)[0])
        assert re.fullmatch(r"(FJ)*", "".join(re.findall(r"<([FJ])", text)))


@pytest.mark.parametrize("name", lessons.REVIEWED)
def test_verdicts_are_true_and_half_of_them_wrong(name):
    rng = random.Random(5)
    found: Counter[Verdict] = Counter()
    for problem in problems(name, 80):
        trace = review.verifier(lessons.REVIEWED[name], problem, rng)
        solution = trace.spans[0].text.partition(" solution ")[2]
        report = read_report(written(trace), VERDICTS)
        assert report.verdict.agrees(right(problem, answer_of(solution))), (trace.spans[0].text, written(trace))
        assert (report.findings == "finding none") == (report.verdict is Verdict.CORRECT)
        found[report.verdict] += 1
    assert set(found) == {Verdict.CORRECT, Verdict.WRONG}
    assert 25 <= found[Verdict.WRONG] <= 55


@pytest.mark.parametrize("name", lessons.REVIEWED)
def test_a_corrector_is_right_whatever_the_finding(name):
    rng = random.Random(6)
    for problem in problems(name, 60):
        trace = review.corrector(lessons.REVIEWED[name], problem, rng)
        assert right(problem, answer_of(written(trace))), (trace.spans[0].text, written(trace))


def test_what_is_begun_anew_is_what_a_solver_writes():
    rng, reviews, family = random.Random(9), lessons.REVIEWED[lessons.ANEW], lessons.FAMILIES[lessons.SUDOKU]
    for problem in problems(lessons.ANEW, 30):
        draft = reviews.draft(problem, True, rng)
        findings = read_report(reviews.report(problem, draft.text), VERDICTS).findings
        assert reviews.corrected(problem, draft.text, findings) == solved(family, problem)


def test_a_corrector_of_several_keeps_what_was_right():
    rng = random.Random(7)
    reviews = lessons.REVIEWED[lessons.SEVERAL]
    for problem in problems(lessons.SEVERAL, 30):
        draft = reviews.draft(problem, True, rng)
        findings = read_report(reviews.report(problem, draft.text), VERDICTS).findings
        text = reviews.corrected(problem, draft.text, findings)
        assert text.count("scan *") == 1
        before, after = (set(one.split(" ; ")) for one in (answer_of(draft.text), answer_of(text)))
        assert len(before & after) == len(problem.data["parts"]) - 1


@pytest.mark.parametrize("name", (lessons.ARITHMETIC, lessons.SUMS))
def test_a_reviewed_solution_is_what_a_thinker_writes(name):
    for problem in problems(name, 30):
        draft = lessons.REVIEWED[name].draft(problem, False, random.Random(0))
        assert draft.text == solved(lessons.FAMILIES[name], problem)


def test_no_lesson_has_a_held_out_problem(tokenizer):
    stream = lessons.Lessons(random.Random(8), tokenizer)
    for kind in ("alone", "organizing", "verifying", "correcting"):
        for name in getattr(lessons.MIXTURE, kind):
            for _ in range(40):
                _assert_trained(stream.problem(name, solvable=kind.startswith(("ver", "cor"))))


def _assert_trained(problem: Problem) -> None:
    for part in problem.data.get("parts", [problem.data]):
        if problem.task.startswith("countdown") and part["target"] in COUNTDOWN_MINI.test_targets:
            _, hits = counted(part["numbers"], part["target"], "*/+-")
            assert not hits
    if problem.task in ("arithmetic-mini", "sums-mini", "parts-mini", SUDOKU.name):
        assert in_split(problem.id, "train")


def test_drills_cover_every_target_alike_and_train_nothing_random():
    rng = random.Random(9)
    targets: Counter[str] = Counter()
    for _ in range(600):
        trace = drills.relations(rng)
        target = trace.spans[0].text.split()[-1]
        targets[target] += 1
        assert all(span.text.split()[0] == target for span in trace.spans if span.origin is Origin.SAMPLED)
    held_out = sum(targets[str(target)] for target in COUNTDOWN_MINI.test_targets) / len(COUNTDOWN_MINI.test_targets)
    assert held_out > 0.7 * 600 / len(targets)
    for span in drills.operations(rng).spans[2::2]:
        assert span.origin is Origin.SAMPLED and len(span.text.split()) == 2


def test_managers_ask_every_member_whatever_the_task(tokenizer):
    rng = random.Random(10)
    asked: Counter[str] = Counter()
    for trace in islice(calling.managers(rng, tokenizer), 250):
        assert ": arithmetic" not in trace.spans[0].text
        asked.update(re.findall(r'"model_id": "(m\d)"', written(trace)))
    assert set(asked) == {f"m{i}" for i in range(1, 7)}
    assert asked["m1"] > asked["m6"] > 0  # pools have one to six members


def test_lessons_of_the_serial_form_have_one_call_a_round(tokenizer):
    def calls(mixture: str) -> set[int]:
        stream = lessons.Lessons(random.Random(12), tokenizer, lessons.MIXTURES[mixture])
        rounds = [span.text for (trace,) in islice(stream, 60) for span in trace.spans if span.origin is Origin.SAMPLED]
        return {text.count('"model_id"') for text in rounds}

    assert calls("manager-serial") == {0, 1}
    assert max(calls("manager")) > 1


def test_every_word_of_a_lesson_is_a_token(tokenizer):
    stream = lessons.Lessons(random.Random(11), tokenizer)
    unknown = tokenizer.encode("<unk>")
    for _, make, name, _ in stream.kinds:
        for _ in range(8):
            for trace in make(name):
                for span in trace.spans:
                    if span.origin is Origin.SAMPLED:
                        assert not set(span.token_ids or tokenizer.encode(span.text)) & set(unknown), span.text


def test_rows_are_the_same_again(tokenizer):
    once, again = (list(islice(lessons.rows(0, 3, tokenizer), 60)) for _ in range(2))
    assert once == again
    assert once != list(islice(lessons.rows(0, 4, tokenizer), 60))
    assert max(map(len, once)) <= 1024


def test_ids_are_places_in_the_vocabulary(tokenizer):
    words = model.vocabulary()
    for word in ("<eos>", "17", "single", "<FORK-8>", "m6"):
        assert tokenizer.encode(word) == (words.index(word),)


def test_fresh_integers_know_their_order():
    ordered = model.fresh(model.sized(128, 4), 0).embedding.weight
    words = model.vocabulary()
    ten, eleven, ninety = (ordered[words.index(str(n))] for n in (10, 11, 93))
    assert (ten - eleven).norm() < (ten - ninety).norm()
    plain = model.fresh(model.sized(128, 4), 0, ordered=False).embedding.weight
    assert abs(ordered.std() - plain.std()) < 0.01
