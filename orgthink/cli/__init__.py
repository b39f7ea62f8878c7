"""The command line: one file a command. An error of the user is one line on stderr and exit code 2."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from orgthink.cli.help import overview, rules
from orgthink.util.errors import EngineUnavailable, Failure, UserError, pick
from orgthink.util.install import DEMO, pip_install
from orgthink.util.redaction import conceal, conceal_url
from orgthink.util.registry import COMMANDS
from orgthink.util.terminal import clean_tracebacks, give_up_output, one_line, show
from orgthink.util.threads import have_ended, set_threads
from orgthink.util.version import __version__

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
SPENT = 3
"""Exit code of a run that reached a limit on its spending."""
MOST = 4_000
"""Characters of an error message, about: it may quote a whole file."""
NEW_OBJECTS = 20_000
"""New objects that start a garbage collection. An agent is a hundred objects that live long: with CPython's default of
700, the collector takes half of the time of 10,000 agents."""


_MEANT = {
    "vote": "eval --organizations majority-vote", "benchmark": "eval", "test": "eval", "solve": "run", "ask": "run",
    "chat": "serve", "finetune": "train", "fine-tune": "train", "plot": "view", "show": "view", "report": "view",
}  # fmt: skip
"""Words for which the spelling finds another command than the one that is meant."""

ELSEWHERE = {
    **{word: f"unknown command {word!r}: did you mean orgthink {meant}?" for word, meant in _MEANT.items()},
    "demo": DEMO,
    **dict.fromkeys(("arena", "import"), f"this is in the arena, a package: {pip_install(package='orgthink-arena')}"),
    "simulate": "the simulation of clusters was removed; orgthink size estimates memory and time of a training step",
}
"""Commands that have another name or come with other packages, or that were removed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Exit codes: 0; 1 if something failed on the way; 2 for bad input; 130 after Ctrl-C; 141 if its output is closed.
    """
    try:
        return _run(argv)
    finally:
        show(end="")  # flushes what libraries have printed, such as help texts


def program() -> NoReturn:
    """The command `orgthink`: `main`, and then an exit that does not wait for a hanging thread, such as a grader's.

    In a process of torchrun, PyTorch's threads may still free tensors, which aborts a program that unloads Python.
    """
    code = main()
    if not have_ended() or "TORCHELASTIC_RUN_ID" in os.environ:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)  # ending a thread within a C++ library would abort the program
    sys.exit(code)


def _run(argv: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # if "≥" cannot be printed
    clean_tracebacks()
    argv = sys.argv[1:] if argv is None else argv
    for argument in argv:
        conceal_url(argument)
    conceal(os.environ.get("OPENAI_API_KEY", "").strip())
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    set_threads(spare=0 if argv[:1] == ["train"] else 1)
    try:
        if not argv or argv[0] in ("--help", "-h", "--version"):
            show(f"orgthink {__version__}" if "--version" in argv[:1] else overview())
            return 0
        return _verb(argv)()
    except (UserError, EngineUnavailable) as error:
        return _complain(str(error))
    except Failure as error:  # the outside world, on the way
        _complain(str(error))
        return 1
    except OSError as error:
        what = error.strerror or str(error)
        return _complain(f"{error.filename}: {what}" if error.filename else what)
    except KeyboardInterrupt:
        _complain("stopped")
        return INTERRUPTED


def _verb(argv: Sequence[str]) -> Callable[[], int]:
    """The command of the arguments, and of the file that they name."""
    from orgthink.cli.options import FromFile, options_in

    first = argv[0]
    if first in ELSEWHERE and first not in COMMANDS:
        raise UserError(ELSEWHERE[first])
    known = list(COMMANDS)  # names a package whose entry points cannot be read, before other libraries read them
    # Only the named command is loaded, so that a broken one does not affect the others.
    verbs = {name: COMMANDS[name] for name in known} if first[:1] == "-" else {first: pick("command", first, COMMANDS)}
    made = _parsed(verbs, argv, {})
    within = isinstance(made, FromFile) and made.config is not None
    return _parsed(verbs, argv, options_in(made.config, type(made))) if within else made


def _parsed(verbs: Mapping[str, Any], argv: Sequence[str], values: Mapping[str, Any]) -> Any:
    """The command of the arguments; these values are its defaults. tyro's frames become one line."""
    import tyro

    file = any(one.startswith("--config") for one in argv)  # it may switch a flag on: then there is --no-FLAG, too
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.extras.subcommand_cli_from_dict(
                dict(verbs),
                prog="orgthink",
                args=argv,
                config=(tyro.conf.DisallowNone, *(() if file else (tyro.conf.FlagCreatePairsOff,))),
                registry=rules(verbs.values(), values),
            )
    except OSError as failure:  # while it prints a help text
        give_up_output(failure)
    except SystemExit as end:
        if not end.code:
            raise
        raise UserError(_unframed(complaint.getvalue())) from None


def _unframed(frame: str) -> str:
    """The error message in a frame, on one line, with the nearest option, without colours and without help texts."""
    lines = "\n".join(line.strip("│ ") for line in re.sub(r"\x1b\[[\d;]*m", "", frame).splitlines())
    _title, complaint, *rest = re.split(r".*[─-]{5,}.*", lines)
    near = re.search(r"Perhaps you meant:\s*(--[\w-]+)", " ".join(rest))
    return " ".join(complaint.split()).rstrip(".") + (f": did you mean {near[1]}?" if near else "; see --help")


def _complain(line: str) -> int:
    line = one_line(line)
    if len(line) > MOST:  # the reason stands behind a long quotation
        line = f"{line[: MOST // 2]} … {line[-MOST // 2 :]}"
    show(f"orgthink: {line}", error=True)
    return 2
