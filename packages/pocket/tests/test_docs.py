"""The documentation is true: its Python runs, its command lines are understood, and what it names exists."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest
from pages import ENDPOINT, PAGES, ROOT, Block, blocks, commands, endpoint, links

import orgthink
from orgthink import tasks
from orgthink.cli import _verb, main
from orgthink.cli.eval import Eval
from orgthink.cli.run import RunCommand
from orgthink.cli.train import Train
from orgthink.evaluation.plan import QUESTION
from orgthink.models.hub import fetched
from orgthink.util.errors import UserError

PYTHON = [block for page in PAGES for block in blocks(page, "python")]
RUN = [ROOT / "docs" / f"{name}.md" for name in ("endpoint", "plugins")]
"""Pages whose commands are run."""
MAKE = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def server():
    with endpoint() as url:
        yield url


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(
        tasks, "_opened", dict(tasks._opened)
    )  # tasks of the pages share names with others of the tests
    return tmp_path


@pytest.mark.parametrize("block", PYTHON, ids=[block.name for block in PYTHON])
def test_a_python_block_runs_and_prints_what_its_comments_say(block: Block, server, elsewhere, capsys):
    code = block.text.replace(ENDPOINT, server)
    exec(compile(code, block.name, "exec"), {"__name__": "__main__"})  # our own text, not a model's
    promised = re.findall(r"# → (.*)", code)
    if promised:
        assert [line for line in capsys.readouterr().out.splitlines() if line] == promised


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_is_understood(page: Path, elsewhere):
    lay_out(page)
    for program, *words in commands(page):
        if program == "orgthink":
            understood(words)
        elif program == "torchrun":
            understood(words[words.index("orgthink") + 1 :])
        elif program == "make":
            assert set(words) <= set(MAKE), words
        elif program == "python" and words[0] == "-m":
            assert importlib.util.find_spec(words[1]) is not None, words


def lay_out(page: Path) -> None:
    """Write the files that a page shows: blocks whose first line is their name, in pieces if it stands there again."""
    for language in ("python", "toml"):
        for block in blocks(page, language):
            if name := re.match(r"# (\S+\.\w+)\n", block.text):
                with Path(name[1]).open("a") as file:
                    file.write(block.text)
    Path("problems.jsonl").write_text('{"problem": "What is 70 + 7?", "question": "What is 70 + 7?", "answer": "77"}\n')
    for block in blocks(page, "json"):
        Path("graph.json").write_text(block.text)
        if all(line.startswith("{") and line.endswith("}") for line in block.text.splitlines()):
            Path("problems.jsonl").write_text(block.text)


def understood(words: list[str]) -> None:
    """The parser accepts the words; recipes, organizations, tasks and settings that they name exist."""
    if words[0].startswith("--"):  # of no command: help, the version, a completion
        return
    model = "pocket-manager" if "paramanager" in words else "pocket-base"
    verb = _verb(
        [
            re.sub(
                r"^(FOLDER|MODEL_FOLDER|\$MODEL|Qwen/\S+|smollm2|examples/smollm2-countdown|runs/\S+/model)$",
                model,
                word,
            )
            for word in words
        ]
    )
    if getattr(verb, "resume", None) is not None:
        return
    if isinstance(verb, Train):
        from orgthink.training.recipes.registry import adjusted, recipe_named

        adjusted(recipe_named(verb.recipe), {}, verb.set)
    elif isinstance(verb, Eval):
        try:
            verb.plan()
        except UserError as error:
            if not re.search(
                "needs its rows|not in the hub's cache|no file of problems|problems.jsonl, row 1", str(error)
            ):  # data that is not on this machine
                raise
    elif isinstance(verb, RunCommand):
        verb.plan_of(QUESTION, (verb.organization,), n=1)


@pytest.mark.thorough
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_guide_run_one_after_the_other(page: Path, server, elsewhere, capsys):
    """On one problem each, except for those with a placeholder, a hosted server or a model that is not trained here."""
    lay_out(page)
    for program, *words in commands(page, inline=False):
        placeholders = [
            word for word in words if re.search(r"(?<!:)\b[A-Z_]{4,}\b|^runs/.*/model$|^https:|^examples/smollm2", word)
        ]
        absent = "smollm2" in words and fetched("smollm2") is None
        if program == "orgthink" and not placeholders and not absent:
            line = [word.replace(ENDPOINT, server) for word in words]
            if "--n" in line:
                line[line.index("--n") + 1] = "1"
            code, said = main(line), capsys.readouterr().err
            assert code == 0 or (code == 1 and "no answer" in said and "--n" in line), (line, said)  # on one problem


@pytest.mark.parametrize("page", [*PAGES, ROOT / "AGENTS.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path):
    """`orgthink/measure/latency.py` is a file, and the symbols that follow a link to it stand in it."""
    text = page.read_text()
    named = re.findall(r"`((?:orgthink|packages|papers|benchmarks|tests|examples)/[\w./-]+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []
    for path, symbols in re.findall(r"`(orgthink/[\w/]+\.py)`(?:\]\([^)]*\))?: ((?:`\w+`(?:, | and )?)+)", text):
        source = (ROOT / path).read_text()
        for symbol in re.findall(r"`(\w+)`", symbols):
            assert re.search(rf"^\s*(?:def|class|async def) {symbol}\b|^{symbol}\b.*=", source, re.MULTILINE), (
                path,
                symbol,
            )


API = (ROOT / "docs" / "api.md").read_text()


@pytest.mark.parametrize("name", re.findall(r"^::: (\S+)", API, re.MULTILINE))
def test_the_api_page_names_existing_objects(name):
    assert pkgutil.resolve_name(name) is not None


def test_the_api_page_has_everything_at_the_top_of_the_package():
    assert [name for name in orgthink.__all__ if not re.search(rf"\b{name}\b", API)] == ["__version__"]
