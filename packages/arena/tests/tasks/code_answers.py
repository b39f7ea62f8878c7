"""Answers to the problems of `code_rows`, right and wrong in many ways, on which graders must agree."""

from __future__ import annotations

from collections.abc import Iterator

from code_rows import RIGHT, fenced

READ = {
    "total": "input()\nlines = [str(sum(map(int, input().split())))]\n",
    "halves": "lines = [str(int(input()) / 2) for _ in range(int(input()))]\n",
    "grid": "lines = ['*' * (i + 1) for i in range(int(input()))]\n",
}
"""Programs that hold the right lines."""
WRITES = {
    "one print": "print('\\n'.join(lines))",
    "a print a line": "for line in lines: print(line)",
    "starred": "print(*lines, sep='\\n')",
    "stdout": "import sys\nsys.stdout.write('\\n'.join(lines))",
    "flushed": "for line in lines: print(line, flush=True)",
    "trailing spaces": "for line in lines: print(line + '   ')",
    "leading spaces": "for line in lines: print('  ' + line)",
    "tabs": "for line in lines: print('\\t' + line + '\\t')",
    "blank lines around": "print()\nfor line in lines: print(line)\nprint()\nprint()",
    "blank lines between": "for line in lines: print(line + '\\n')",
    "carriage returns": "print('\\r\\n'.join(lines), end='\\r\\n')",
    "no newline": "print('\\n'.join(lines), end='')",
    "one line": "print(' '.join(lines))",
    "commas": "print(', '.join(lines))",
    "a list": "print(lines)",
    "a tuple": "print(tuple(lines))",
    "a tuple of each": "for line in lines: print((line, line))",
    "decimals": "for line in lines: print(line + ('' if '.' in line else '.0'))",
    "many decimals": "for line in lines: print(line + ('000' if '.' in line else '.000'))",
    "cut decimals": "for line in lines: print(line.removesuffix('.0'))",
    "an exponent": "for line in lines: print(line + 'e0')",
    "a plus": "for line in lines: print('+' + line)",
    "underscores": "for line in lines: print(line[:-1] + '_' + line[-1])",
    "a little more": "for line in lines: print(line + '0000000001' if '.' in line else line + '.0000000001')",
    "twice": "for line in lines * 2: print(line)",
    "upside down": "for line in reversed(lines): print(line)",
    "without the last": "for line in lines[:-1]: print(line)",
    "a word before": "print('Answer:', lines[0])\nfor line in lines[1:]: print(line)",
    "a word below": "for line in lines: print(line)\nprint('done')",
    "nothing": "pass",
    "NaN": "for line in lines: print('nan')",
    "on stderr": "import sys\nfor line in lines: print(line, file=sys.stderr)",
    "beside stderr": "import sys\nprint('debug', file=sys.stderr)\nfor line in lines: print(line)",
    "exits with 0": "import sys\nfor line in lines: print(line)\nsys.exit(0)",
    "exits with 3": "import sys\nfor line in lines: print(line)\nsys.exit(3)",
    "exits with a word": "for line in lines: print(line)\nexit('bye')",
    "exits early": "import sys\nsys.exit(0)\nfor line in lines: print(line)",
    "raises below": "for line in lines: print(line)\nraise ValueError('late')",
    "raises above": "raise ValueError('early')\nfor line in lines: print(line)",
    "divides": "for line in lines: print(line)\n1 / 0",
    "catches": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    for line in lines: print(line)",
    "sleeps a little": "import time\ntime.sleep(0.2)\nfor line in lines: print(line)",
    "no import": "for line, n in Counter(lines).items(): print('\\n'.join([line] * n))",
    "deep": "def deep(n):\n    return n and deep(n - 1)\ndeep(9000)\nfor line in lines: print(line)",
    "a function": "def main():\n    for line in lines: print(line)\nmain()",
    "threads": ("import threading\nt = threading.Thread(target=lambda: print('\\n'.join(lines)))\nt.start()\nt.join()"),
    "an empty program": None,
}
"""Ways to write them; `None`: none at all."""
SLOW = {"loops": "while True: pass", "sleeps": "import time\ntime.sleep(60)"}
BODIES = {
    "right": "return {right}",
    "a tuple": "return tuple({right})",
    "a float": "return float({right})",
    "a truth value": "return bool({right})",
    "a text": "return str({right})",
    "a list of it": "return [{right}]",
    "None": "return None",
    "nothing": "pass",
    "one more": "return {right} + 1",
    "printed": "print({right})",
    "printed too": "print('debug', {right})\n        return {right}",
    "a set": "return set([{right}])",
    "a dictionary": "return dict(found={right})",
    "an iterator": "return iter([{right}])",
    "nested tuples": "return [({right}, {right})]",
    "raises": "raise ValueError({right})",
    "divides": "return {right} // 0",
    "helped": "return max([{right}])",
    "counted": "return list(Counter([{right}]))[0]",
    "cached": "return lru_cache(lambda: {right})()",
    "recursive": "return (lambda f: f(f, 9000))(lambda f, n: f(f, n - 1) if n else {right})",
}
"""Bodies of methods."""
VALUES = {"widest": "max(values) - min(values)", "minmax": "[min(values), max(values)]"}


def programs() -> Iterator[tuple[str, str, str]]:
    """Key of a problem, a name, a program."""
    for key, read in READ.items():
        for name, write in WRITES.items():
            yield key, name, "" if write is None else read + write
    for key, right in VALUES.items():
        for name, body in BODIES.items():
            yield key, name, f"class Solution:\n    def {key}(self, values):\n        {body.format(right=right)}"
    for key, name in (("total", "loops"), ("grid", "sleeps")):
        yield key, name, READ[key] + SLOW[name]
    yield "widest", "loops", "class Solution:\n    def widest(self, values):\n        while True: pass"
    yield "widest", "a function alone", "def widest(values):\n    return max(values) - min(values)"
    yield (
        "widest",
        "another name",
        "class Solution:\n    def other(self, values):\n        return max(values) - min(values)",
    )
    yield (
        "widest",
        "another class",
        "class Solver:\n    def widest(self, values):\n        return max(values) - min(values)",
    )
    yield "widest", "no such syntax", "class Solution:\n    def widest(self, values)\n        return 0"
    yield "total", "no such syntax", "print(sum(map(int, input().split()))"
    yield "total", "read at once", "import sys\nn, *rest = sys.stdin.read().split()\nprint(sum(map(int, rest)))"
    yield (
        "total",
        "line by line",
        "import sys\nlines = [line for line in sys.stdin]\nprint(sum(map(int, lines[1].split())))",
    )
    yield "total", "readlines", "import sys\nprint(sum(map(int, sys.stdin.readlines()[1].split())))"
    yield "total", "readline", "import sys\nsys.stdin.readline()\nprint(sum(map(int, sys.stdin.readline().split())))"
    yield "total", "open", "print(sum(map(int, open(0).read().split()[1:])))"
    yield (
        "total",
        "guarded",
        "def main():\n    input()\n    print(sum(map(int, input().split())))\n\nif __name__ == '__main__':\n    main()",
    )
    yield "total", "too much read", "input(), input(), input()\nprint(0)"


def answers() -> Iterator[tuple[str, str, str]]:
    """Key of a problem, a name, a whole answer."""
    for key, name, program in programs():
        yield key, name, fenced(program)
    for key in ("total", "minmax"):
        right, wrong = RIGHT[key], "print('no')"
        yield key, "the last block is right", fenced(wrong) + fenced(right)
        yield key, "the last block is wrong", fenced(right) + fenced(wrong)
        yield key, "no fence", right
        yield key, "a fence that never ends", f"```python\n{right}\n"
        yield key, "a block, and one that never ends", fenced(right) + f"```python\n{right}\n"
        yield key, "no language", f"```\n{right}\n```"
        yield key, "another language", f"```py\n{right}\n```\nThat is all."
        yield key, "fences in one line", f"```{right}```"
        yield key, "nothing", ""
        yield key, "words", "I do not know."
