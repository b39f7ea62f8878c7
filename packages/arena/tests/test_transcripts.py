"""Transcripts of other groups' formats, made up here: parsed, measured and drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from orgthink_arena.transcripts import DIALECTS, Import

from orgthink.cli.measure import Measure
from orgthink.cli.view import View
from orgthink.measure.latency import concurrency, critical_path
from orgthink.record.episode import Episode, Grade, Origin, Problem, Span
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.view.layout import layout

TRANSCRIPTS = {
    "npr": """<guideline>
<plan>1: Add them.</plan>
<plan>2: Count on fingers.</plan>
</guideline>
<step>
1: Three and four are seven.
</step>
<step>
2: From three, four more: four, five, six, seven.
</step>
<takeaway>
Both say seven.
</takeaway>

<guideline>
<plan>1: Check.</plan>
</guideline>
<step>
1: Seven less four is three.
</step>
<takeaway>
It holds.
</takeaway>
So \\boxed{7}.""",
    "multiverse": """Let us see.
<Parallel>
<Goal>
<Outline>1: Add.</Outline>
<Outline>2: Check.</Outline>
</Goal>
<Path>
1: Add in two ways.
<Parallel>
<Goal>
<Outline>1.1: Forwards.</Outline>
<Outline>1.2: Backwards.</Outline>
</Goal>
<Path>
1.1: Three plus four is seven.
</Path>
<Path>
1.2: Four plus three is seven.
</Path>
<Conclusion>
Seven both times.
</Conclusion>
</Parallel>
</Path>
<Path>
2: Seven less three is four.
</Path>
<Conclusion>
Seven.
</Conclusion>
</Parallel>
The answer is \\boxed{7}.""",
    "parallel-r1": """First a thought. <Parallel>
<Path>Three and four are seven.</Path>
<Path>Four and three: seven, too.</Path>
</Parallel>
<Summary>Seven twice.</Summary>
Once more. <Parallel><Path>Seven less four is three.</Path><Path>Seven is odd.</Path></Parallel>
<Summary>Fine.</Summary> \\boxed{7}""",
    "parathinker": """<think1>Three and four are seven.</think1><think2>I count: five, six, seven.</think2>\
<think3>Eight? No, seven.</think3><summary>All say seven: \\boxed{7}</summary>""",
    "threadweaver": """<think>
<Parallel>
<Outlines>
<Outline>1: Add.</Outline>
<Outline>2: Count.</Outline>
</Outlines>
<Thread>
1: Three and four are seven.
</Thread>
<Thread>
2: Five, six, seven.
</Thread>
</Parallel>
Both agree.
</think>
It is \\boxed{7}.""",
}
"""A transcript of each format, of what three and four make."""

FORKS = {"npr": (2, 1), "multiverse": (2, 2), "parallel-r1": (2, 2), "parathinker": (3,), "threadweaver": (2,)}
"""Paths of each block, in order of time."""

PATHS = {
    "npr": 8 + 10 + 7 + 6 + 6,
    "multiverse": 10 + (11 + 6 + 6) + 7,
    "parallel-r1": 4 + 5 + 5 + 5 + 2,
    "parathinker": 5 + 4,
    "threadweaver": 8 + 6 + 6,
}
"""Words on the critical path: the model's own between the blocks, and those of the longest path of each block."""


def words(text: str) -> int:
    return len(text.split())


@pytest.fixture(params=TRANSCRIPTS)
def read(request: pytest.FixtureRequest) -> Episode:
    problem = Problem("p", "math", "What do 3 and 4 make?", data={"answer": "7"})
    name = request.param
    return DIALECTS[name].episode(TRANSCRIPTS[name], problem, name, count=words)


def test_forks_joins_and_the_answer_are_those_of_the_text(read: Episode) -> None:
    forks = [trace.forks for trace in read.traces if trace.forks]
    blocks = [[fork.at for fork in of_one].count(at) for of_one in forks for at in dict.fromkeys(f.at for f in of_one)]
    assert tuple(blocks) == FORKS[read.organization] and read.answer == "7"
    assert all([edge.kind for edge in trace.edges].count("join") == len(trace.forks) for trace in read.traces)
    assert read.root.text == TRANSCRIPTS[read.organization] and read.format_faults == ()


def test_what_the_runtime_writes_is_no_step(read: Episode) -> None:
    sampled = [span.text for trace in read.traces for span in trace.spans if span.origin is Origin.SAMPLED]
    opening = DIALECTS[read.organization].path[0].strip().partition("{")[0].strip()
    assert not any(opening in text for text in sampled)
    assert not any(tag in text for text in sampled for tag in ("<takeaway>", "<Conclusion>", "<Summary>", "<summary>"))


def test_the_critical_path_goes_through_the_longest_path_of_each_block(read: Episode) -> None:
    assert critical_path(read) == PATHS[read.organization]
    assert (concurrency(read) or 0) > 1
    assert sum(bar.steps[1] - bar.steps[0] for bar in layout(read).critical) == PATHS[read.organization]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    texts = [TRANSCRIPTS["npr"], TRANSCRIPTS["npr"].replace("boxed{7}", "boxed{8}")]
    lines = [{"problem": "What do 3 and 4 make?", "answer": "7", "transcript": text} for text in texts]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_a_file_becomes_a_graded_run_that_is_measured_and_drawn(rows: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert Import(source=rows, format="npr", out=out)() == 0
    episodes = list(RunFolder.open(out).episodes())
    assert [episode.sample for episode in episodes] == [0, 1]
    assert [episode.grade for episode in episodes] == [Grade(1, 1), Grade(0, 1)]
    assert Measure(run=out, json=True)() == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])["summary"]["npr"]
    assert row["n"] == 2 and row["critical_path_steps"]["mean"] < row["sampled_tokens"]["mean"]
    assert View(folder=out)() == 0
    assert "Count on fingers" in (out / "view.html").read_text()


def test_a_run_whose_model_wrote_all_paths_itself_is_read_with_its_answers_and_grades(tmp_path: Path) -> None:
    problem = Problem("p", "other", "What do 3 and 4 make?")
    read = DIALECTS["npr"].episode(TRANSCRIPTS["npr"], problem, "sequential")
    plain = replace(read.root, spans=(Span(Origin.SAMPLED, TRANSCRIPTS["npr"], 99),), edges=())
    stored = replace(read, traces=(plain,), answer="seven", grade=Grade(1, 1))
    with RunFolder.create(tmp_path / "run", "run", {}).journal() as journal:
        journal.append(stored)
    assert Import(source=tmp_path / "run", format="npr", out=tmp_path / "paths")() == 0
    (found,) = RunFolder.open(tmp_path / "paths").episodes()
    assert (found.answer, found.grade, found.problem) == ("seven", Grade(1, 1), problem)
    assert len(found.traces) == 4 and critical_path(found) < read.root.steps + sum(t.steps for t in read.traces[1:])


def test_a_tokenizer_counts_the_tokens(rows: Path, tmp_path: Path) -> None:
    pytest.importorskip("orgthink_pocket")
    from orgthink.engines import shipped
    from orgthink.models.tokenizer import Tokenizer

    folder = shipped("pocket-base")
    assert folder is not None
    Import(source=rows, format="npr", out=tmp_path / "run", tokenizer=str(folder))()
    root = next(iter(RunFolder.open(tmp_path / "run").episodes())).root
    assert [span.tokens for span in root.spans] == [len(Tokenizer(folder).encode(span.text)) for span in root.spans]


@pytest.mark.parametrize(
    ("line", "settings", "why"),
    [
        ({"problem": "?", "answer": "7"}, {}, "row 1: transcript is missing"),
        ({"answer": "7", "transcript": "x"}, {}, "row 1: no column with the question"),
        ({"problem": "?", "answer": "7", "transcript": "x"}, {"format": "nrp"}, "did you mean npr"),
        ({"problem": "?", "answer": "7", "transcript": "x"}, {"tokenizer": "nowhere"}, "nowhere has no tokenizer.json"),
    ],
)
def test_bad_input_is_one_line(line: dict[str, str], settings: dict[str, str], why: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(line))
    given = {"format": "npr", **settings}
    with pytest.raises(UserError, match=why):
        Import(source=file, out=tmp_path / "run", **given)()
    assert not (tmp_path / "run").exists()
