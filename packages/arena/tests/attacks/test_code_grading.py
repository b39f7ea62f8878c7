"""Programs that want a point for a problem that they do not solve: what is right to print is nowhere to be found."""

from __future__ import annotations

import base64
import os
import pickle
import secrets
import zlib
from textwrap import dedent

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within
from attacks.kernel_programs import KERNEL
from attacks.outside import bait
from code_rows import fenced, row
from orgthink_arena.judges.judge import Judge, JudgeLimits, Submission
from orgthink_arena.tasks.bench import configured, program_tests
from orgthink_arena.tasks.bench.fenced import last_block
from orgthink_arena.tasks.bench.livecodebench import LIVECODEBENCH_V6, SETTINGS, read_livecodebench
from orgthink_arena.tasks.bench.rows import renamed
from orgthink_arena.tasks.bench.task import BenchmarkTask

from orgthink.record.episode import Problem

pytestmark = pytest.mark.thorough
HIDDEN = "What is right to print is in no sandbox: not in files, variables, arguments, memory or other processes."
UNFORGED = "Only what a program printed, or returned as plain data, counts; it is compared outside."
ENDED = "A test that is over leaves nothing to the next one, and nothing behind."
BOUNDED = "Every test ends by its limits, and the grader survives what a program prints."
NO_CODE = "Private tests are read by a reader that builds one text and nothing else, of a bounded size."
NO_POINT = "the answer is wrong"
SOON = 3.0
"""Seconds of a test here; the machine may be busy."""

TASK = BenchmarkTask(configured(LIVECODEBENCH_V6, {"seconds": SOON, "memory_mb": 256}), "livecodebench-v6")


def problem(right: str, function: str = "", tests: int = 2) -> Problem:
    """A problem whose tests all have this right output."""
    cases = [("[1]" if function else "1\n", right)] * tests
    values = renamed(row("secret", "?", cases, cases, function=function, date="2025-02-02"), LIVECODEBENCH_V6.columns)
    read = read_livecodebench(SETTINGS | values)
    assert read is not None
    return TASK.problem(read)


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    with bait(tmp_path_factory.mktemp("outside")) as outside:
        yield outside


LOOKS = """
import gc, os, re, sys
def look(text):
    for found in re.findall(r"right-[0-9a-f]{32}", text if isinstance(text, str) else text.decode(errors="replace")):
        print(found); sys.stdout.flush(); os._exit(0)
"""
"""A right output has this form, so a program that can see one prints it."""
TAKES = KERNEL + LOOKS + "parent = os.getppid()\n"

SEARCHES = {
    "all files of its own": """
        for folder, _, names in os.walk("/"):
            if not folder.startswith(("/usr", "/python", "/lib")):
                for name in names:
                    try: look(open(os.path.join(folder, name), "rb").read(1 << 20)) if "dev" not in folder else None
                    except OSError: pass
        """,
    "variables of the environment and arguments": "look(str(dict(os.environ)) + str(sys.argv) + str(sys.orig_argv))",
    "all objects in memory": """
        for each in gc.get_objects(): look(str(each)) if isinstance(each, dict | list | tuple) else None
        """,
    "the frames above it": """
        frame = sys._getframe()
        while frame: look(str(frame.f_locals) + str(frame.f_globals)); frame = frame.f_back
        """,
    "all open descriptors": """
        for number in range(64):
            try: look(os.read(number, 1 << 16))
            except OSError: pass
        """,
    "files of the process above": """
        for name in ("mem", "environ", "cmdline", "maps", "fd"):
            try: look(open(f"/proc/{os.getppid()}/{name}", "rb").read(1 << 20))
            except OSError: pass
        """,
}
STEALS = {
    "the memory of the process above, by a call": """
        buffer = ctypes.create_string_buffer(1 << 16)
        for start in range(0x400000, 0x1000000, 1 << 16):
            local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 1 << 16)
            there = (ctypes.c_size_t * 2)(start, 1 << 16)
            if libc.syscall((310, 270)[arm], parent, local, 1, there, 1, 0) > 0: look(buffer.raw); print("ESCAPED")
        """,
    "the registers of the process above": 'if libc.ptrace(16, parent, 0, 0) == 0: print("ESCAPED")',
    "the descriptors of the process above": """
        handle = os.pidfd_open(parent)
        for number in range(64):
            if libc.syscall(438, handle, number, 0) >= 0: print("ESCAPED")
        """,
}
FORGES = {
    "writes the supervisor's words to every descriptor": """
        import os
        for number in range(64):
            for word in (b"0", b"ready", b"OK"):
                try: os.write(number, word)
                except OSError: pass
        """,
    "exits early": "import sys\nsys.exit(0)",
    "ends its process without Python's knowledge": "import os\nos._exit(0)",
    "replaces the ways to exit": """
        import os, sys
        sys.exit = os._exit = quit = lambda *code: print("passed")
        raise SystemExit
        """,
    "closes its output": "import sys\nsys.stdout.close()",
    "closes all descriptors": "import os\nos.closerange(0, 64)",
    "replaces print, input and open": """
        import builtins
        builtins.print = builtins.input = builtins.open = lambda *all: True
        print(input())
        """,
    "replaces the program of the supervisor": """
        import os
        for name in ("/code.py", "/tmp/json.py", "/tmp/sitecustomize.py"):
            try: open(name, "w").write("print('passed')")
            except OSError: pass
        """,
    "kills the process above": "import os\nos.kill(os.getppid(), 9)",
    "kills all that it can": "import os\nos.kill(-1, 9)",
    "prints NaN": "print(float('nan'))",
    "prints a number without end": "print('1e999999999999999999 ' * 1000)",
}
OUTLIVES = """
import os, time, sys
def lives(number):
    try: os.kill(number, 0)
    except OSError: return False
    return number not in (os.getpid(), os.getppid())
if os.path.exists("/tmp/left") or any(map(lives, range(2, 999))): print("ESCAPED"); sys.exit()
os.makedirs("/tmp/left/" + "x/" * 200)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        for n in signal.valid_signals() - {9, 19}: signal.signal(n, signal.SIG_IGN)
        time.sleep(60)
    os._exit(0)
print(@RIGHT@)
"""
KEEPS = """
import os
for name in ("/tmp/keep", "/tmp/keep/keep"):
    if os.path.lexists(name): print("ESCAPED"); os._exit(0)
@LEAVES@
print(@RIGHT@)
"""
LEAVES = {
    "a file in a folder that nobody may look into": """
        os.mkdir("/tmp/keep"); open("/tmp/keep/n", "w"); os.chmod("/tmp/keep", 0)
        """,
    "a file in a folder that nobody may write to": """
        os.mkdir("/tmp/keep"); open("/tmp/keep/n", "w"); os.chmod("/tmp/keep", 0o555)
        """,
    "a thousand folders in each other without any rights": """
        os.mkdir("/tmp/keep")
        os.chdir("/tmp/keep")
        for _ in range(1000): os.mkdir("x"); os.chdir("x")
        for _ in range(1000): os.chdir(".."); os.chmod("x", 0)
        os.chmod("/tmp/keep", 0)
        """,
    "links to folders of the system, and to itself": """
        os.mkdir("/tmp/keep")
        for n, target in enumerate(("/", "/usr", "/tmp", ".", "3", "/nowhere")): os.symlink(target, f"/tmp/keep/{n}")
        os.symlink("/python", "/tmp/link"); os.chmod("/tmp/keep", 0)
        """,
    "a process that takes all rights from its folder, for as long as it lives": """
        if os.fork() == 0:
            os.setsid()
            while True:
                try: os.makedirs("/tmp/keep/keep", exist_ok=True)
                except OSError: pass
                os.chmod("/tmp/keep", 0)
        while not os.path.exists("/tmp/keep"): pass
        """,
}
"""What a program that passes leaves behind, for the next test to find."""
CHANGES = {
    "the rights of its folder": ("os.stat('/tmp').st_mode & 0o7777", "os.chmod('/tmp', 0o711)"),
    "a flag of its folder": (
        "fcntl.ioctl(os.open('/tmp', 0), 0x80086601, bytes(8))",
        "fcntl.ioctl(os.open('/tmp', 0), 0x40086602, (0x40).to_bytes(8, 'little'))",
    ),
    "the limits of the process above": (
        "resource.getrlimit(resource.RLIMIT_CPU)", "resource.prlimit(parent, resource.RLIMIT_CPU, (12345, 23456))"
    ),
    "the priority of the process above": ("os.getpriority(0, 0)", "os.setpriority(0, parent, 7)"),
    "the kind of priority of the process above": (
        "os.sched_getscheduler(0)", "os.sched_setscheduler(parent, os.SCHED_BATCH, os.sched_param(0))"
    ),
    "the processors of the process above": (
        "len(os.sched_getaffinity(0))", "os.sched_setaffinity(parent, {min(os.sched_getaffinity(0))})"
    ),
}  # fmt: skip
"""Something that a test can see, and how one changes it for the next one."""
ENDLESS = {
    "prints 10 GB": "while True: print('x' * 1_000_000)",
    "prints 10 GB of empty lines": "import sys\nwhile True: sys.stdout.write('\\n' * 1_000_000)",
    "sleeps": "import time\ntime.sleep(1000)",
    "stops the process above": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos._exit(0)",
    "ignores every signal": """
        import signal
        for n in signal.valid_signals() - {9, 19}: signal.signal(n, signal.SIG_IGN)
        while True:
            try:
                while True: pass
            except BaseException: pass
        """,
    "forks without end": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "takes all memory": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "never lets its output go": """
        import os, time
        if os.fork() == 0: time.sleep(1000)
        """,
}
EQUALS = """
class Equal(@BASE@):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __instancecheck__(self, kind): return True
class Solution:
    def secret(self, values): return Equal()
"""
RETURNS = {
    **{f"an {base or 'object'} that equals everything": EQUALS.replace("@BASE@", base)
       for base in ("", "int", "str", "list", "dict", "tuple", "float")},
    "a list that holds itself": "class Solution:\n    def secret(self, values): x = []; x.append(x); return x",
    "a list 100,000 deep": """
        class Solution:
            def secret(self, values):
                x = []
                for _ in range(100_000): x = [x]
                return x
        """,
    "JSON that it wrote to the descriptor itself": """
        import os
        class Solution:
            def secret(self, values):
                for number in range(64):
                    try: os.write(number, b'{"items": [["a"]]}')
                    except OSError: pass
                os._exit(0)
        """,
    "what it makes of the harness": """
        import sys, json
        json.dumps = lambda *all, **more: "true"
        frame = sys._getframe()
        while frame:
            frame.f_globals.update(plain=lambda *all, **more: True, returned=lambda *all, **more: "true")
            frame = frame.f_back
        class Solution:
            def secret(self, values): return True
        """,
    "a class that lies about its class": """
        class Solution:
            def secret(self, values):
                class Lie:
                    __class__ = bool
                    def __eq__(self, other): return True
                return Lie()
        """,
}  # fmt: skip


def programs(programs: dict[str, str], promise: str, before: str = "") -> list[Attack]:
    """Attacks of a kind."""
    return [Attack(does, promise, NO_POINT, before + dedent(code)) for does, code in programs.items()]


@each(
    *programs({f"looks for the right output in {where}": code for where, code in SEARCHES.items()}, HIDDEN, LOOKS),
    *programs({f"takes {what}": code for what, code in STEALS.items()}, HIDDEN, TAKES),
)
def test_a_search(attack, outside):
    """It comes to its end, and has found nothing."""
    asked = problem(f"right-{secrets.token_hex(16)}", tests=1)
    assert TASK.grade(asked, fenced(attack.given)).correct == 0
    judge = Judge(JudgeLimits(60.0, 256))
    with judge.outputs(Submission(f"{attack.given}\nprint('searched')"), ["1\n"]) as outputs:
        output = next(outputs)
    assert (output.text.split()[-1:], output.failure) == (["searched"], None)
    assert "ESCAPED" not in output.text and "right-" not in output.text
    outside.untouched()


@each(
    *programs(FORGES, UNFORGED),
    *programs(ENDLESS, BOUNDED),
)
def test_a_program(attack, outside):
    right = f"right-{secrets.token_hex(16)}"
    assert TASK.grade(problem(right), fenced(attack.given)).correct == 0
    outside.untouched()


@each(*programs({f"returns {what}": code for what, code in RETURNS.items()}, UNFORGED))
def test_a_function(attack, outside):
    for right in ('"right"', "[1]", "7"):
        assert TASK.grade(problem(right, "secret", tests=1), fenced(attack.given)).correct == 0
    outside.untouched()


@each(
    Attack("leaves a file, and a process that ignores every signal", ENDED, "the next test finds nothing", OUTLIVES),
)
def test_what_is_left(attack, outside):
    """The one program here that knows what is right, so that every test is run."""
    right = f"right-{secrets.token_hex(16)}"
    asked = problem(right, tests=3)
    before = set(os.listdir("/proc/self/fd"))
    assert TASK.grade(asked, fenced(attack.given.replace("@RIGHT@", repr(right)))).correct == 1
    assert set(os.listdir("/proc/self/fd")) <= before
    outside.untouched()


@each(
    *(Attack(f"leaves {does}", ENDED, "the next test finds nothing", dedent(code)) for does, code in LEAVES.items()),
)
def test_files_that_are_left(attack, outside):
    """Every test passes, so none has found anything."""
    right = f"right-{secrets.token_hex(16)}"
    program = KEEPS.replace("@LEAVES@", attack.given).replace("@RIGHT@", repr(right))
    assert TASK.grade(problem(right, tests=3), fenced(program)).correct == 1
    outside.untouched()


@each(
    *(
        Attack(f"changes {what}", ENDED, "the next test finds it as it was, or there is none", given)
        for what, given in CHANGES.items()
    ),
)
def test_what_is_changed(attack):
    shows, changes = attack.given
    program = f"import fcntl, os, resource\nparent = os.getppid()\nprint({shows})\n{changes}"
    with Judge(JudgeLimits(SOON, 256)).outputs(Submission(program), ["1\n"] * 3) as outputs:
        texts = [output.text for output in outputs if output.failure is None]
    assert len(set(texts)) <= 1


@each(
    Attack("passes the tests by the value that the grader knows", UNFORGED, "the right answer is right, by contrast"),
)
def test_the_right_program_passes(attack):
    """Otherwise all attacks would fail for nothing."""
    right = f"right-{secrets.token_hex(16)}"
    assert TASK.grade(problem(right), fenced(f"print({right!r})")).correct == 1
    assert TASK.grade(problem("[1]", "secret"), fenced("class Solution:\n def secret(self, v): return v")).correct == 1
    assert TASK.grade(problem("[1]", "secret"), fenced("def secret(v): return (True,)")).correct == 1


class Harm:
    """Unpickled, it would end the test."""

    def __reduce__(self):
        return os._exit, (99,)


def packed(pickled: bytes) -> str:
    return base64.b64encode(zlib.compress(pickled)).decode()


@each(
    *(
        Attack(does, NO_CODE, "one line that says what is wrong", given)
        for does, given in {
            "private tests whose pickle runs a program": packed(pickle.dumps(Harm())),
            "a pickle of a list of texts": packed(pickle.dumps(["a", "b"])),
            "a pickle of bytes": packed(pickle.dumps(b"[]")),
            "a pickle that asks for a table of 2³¹ entries": packed(b"\x80\x04X\x02\x00\x00\x00[]r\xff\xff\xff\x7f0N."),
            "a pickle that is cut off": packed(pickle.dumps("[]")[:-1]),
            "a pickle of a text that is no JSON": packed(pickle.dumps("no")),
            "a pickle of a thousand times its size, over the bound": packed(pickle.dumps("[]") + b"\0" * (1 << 24)),
            "zlib without its checksum": base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-4]).decode(),
            "no base64": "?",
            "an empty text": "",
            "JSON 100,000 deep": "[" * 100_000,
            "tests that are numbers": "[1, 2]",
            "a test whose output is a list": '[{"input": "", "output": []}]',
        }.items()
    )
)
def test_private_tests(attack, monkeypatch):
    monkeypatch.setattr(program_tests, "MOST_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="test") as raised:
        within(60, lambda: program_tests.cases_in(attack.given))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 200


@each(
    *(
        Attack(does, "Answers are read in time linear in their length.", "no program, or the last one", given)
        for does, given in {
            "200,000 fences": "```\n" * 200_001,
            "a million backticks": "`" * 1_000_000,
            "100,000 blocks": "```python\nprint()\n```\n" * 100_000 + "```",
        }.items()
    )
)
def test_long_answers(attack):
    assert within(30, lambda: last_block(attack.given)) is None
