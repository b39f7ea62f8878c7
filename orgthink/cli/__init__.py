"""The command line: one file a verb. What the user can put right is one line on stderr and exit code 2."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from orgthink.cli.garbage import collect_rarely
from orgthink.cli.resuming import INTERRUPTED
from orgthink.util.beside import have_ended
from orgthink.util.redaction import conceal, conceal_url
from orgthink.util.terminal import clean_tracebacks, give_up_output, one_line, show
from orgthink.util.threads import set_threads
from orgthink.util.version import __version__

MOST = 4_000
"""Characters of a complaint, about: what it quotes may be as long as a file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Exit codes: 0; 1 if something failed on the way; 2 for bad input; 130 after Ctrl-C; 141 if nobody reads its output
    any more.
    """
    try:
        return _run(argv)
    finally:
        show(end="")  # what somebody else has printed, such as help texts


def program() -> NoReturn:
    """The command `orgthink`: `main`, and then the end, also where a thread hangs, such as a grader's."""
    code = main()
    if not have_ended():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)  # a thread that is ended within a library of C++ would abort the program
    sys.exit(code)


def _run(argv: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # where "≥" cannot be printed
    clean_tracebacks()
    argv = sys.argv[1:] if argv is None else argv
    for argument in argv:
        conceal_url(argument)
    conceal(os.environ.get("OPENAI_API_KEY", "").strip())
    collect_rarely()
    set_threads(spare=0 if argv[:1] == ["train"] else 1)
    from orgthink.engines.engine import EngineUnavailable
    from orgthink.util.errors import Failure, UserError

    if argv[:1] == ["--version"]:
        show(f"orgthink {__version__}")
        return 0
    try:
        return _verb(argv)()
    except (UserError, EngineUnavailable) as error:
        return _complain(str(error))
    except Failure as error:  # the outside world, on the way
        _complain(str(error))
        return 1
    except OSError as error:
        what = error.strerror or str(error)
        named = error.filename or ("the current folder" if _is_gone() else None)
        return _complain(f"{named}: {what}" if named else what)
    except KeyboardInterrupt:
        _complain("stopped")
        return INTERRUPTED


def _is_gone() -> bool:
    """Whether the current folder was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _verb(argv: Sequence[str]) -> Callable[[], int]:
    """The command that the arguments describe. tyro's frames become one line."""
    import tyro

    from orgthink.cli.repeated import gathered
    from orgthink.util.errors import UserError
    from orgthink.util.registry import COMMANDS, DEMO

    first = next(iter(argv), "--help")
    if first == "demo" and first not in COMMANDS:
        raise UserError(DEMO)
    known = list(COMMANDS)  # names a package whose entry points cannot be read, before other libraries meet them
    # A command that cannot be loaded is in nobody else's way.
    verbs = {name: COMMANDS[name] for name in ([first] if first in COMMANDS else known)}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.extras.subcommand_cli_from_dict(
                verbs,
                prog="orgthink",
                description="Run, measure and train language models that organize themselves.",
                args=gathered(argv, verbs.get(first)) or ["--help"],
                config=(tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff),
            )
    except OSError as failure:  # of a help text
        give_up_output(failure)
    except SystemExit as end:
        if not end.code:
            raise
        raise UserError(_unframed(complaint.getvalue())) from None


def _unframed(frame: str) -> str:
    """What a frame says, on one line: the complaint and the nearest option, without help texts."""
    lines = "\n".join(line.strip("│ ") for line in frame.splitlines())
    _title, complaint, *rest = re.split(r".*[─-]{5,}.*", lines)
    near = re.search(r"Perhaps you meant:\s*(--[\w-]+)", " ".join(rest))
    return " ".join(complaint.split()).rstrip(".") + (f": did you mean {near[1]}?" if near else "; see --help")


def _complain(line: str) -> int:
    line = one_line(line)
    if len(line) > MOST:  # what is wrong with a long quotation stands behind it
        line = f"{line[: MOST // 2]} … {line[-MOST // 2 :]}"
    show(f"orgthink: {line}", error=True)
    return 2
