"""Every promise has its proof: a test quotes the number of each fault in docs/reliability.md."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
LIST = TESTS.parent / "docs" / "reliability.md"
PROMISES = [f"F{n:02d}" for n in range(1, 87)]
# Those that cannot be met from outside a running daemon, or that are not the daemon's.
ELSEWHERE = {
    "F23": "only from inside can a handler be made to raise and its thread to die",
    "F28": "an emitter that says nothing has to be put in the place of the kernel's",
    "F73": "it is burnctl that meets a daemon of another version",
    "F84": "what is imported where, without a running daemon",
}


@cache
def _quoted(path: Path) -> frozenset[str]:
    """The promises in the docstrings of a file's tests, ranges included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for first, last in re.findall(r"F(\d\d)(?:-F(\d\d))?", ast.get_docstring(node) or ""):
                found |= {f"F{n:02d}" for n in range(int(first), int(last or first) + 1)}
    return frozenset(found)


def test_every_fault_is_listed_and_tested() -> None:
    """F-numbers link each fault to the tests of its promise."""
    assert list(dict.fromkeys(re.findall(r"^\| (F\d\d) \|", LIST.read_text(), re.MULTILINE))) == PROMISES
    quoted = {promise for path in TESTS.rglob("test_*.py") for promise in _quoted(path)}
    assert sorted(set(PROMISES) - quoted) == []


def test_what_a_running_daemon_can_meet_is_met_here() -> None:
    """Each promise is proved in this folder against a real daemon, or the reason why not is stated."""
    here = {promise for path in Path(__file__).parent.glob("test_*.py") for promise in _quoted(path)}
    assert sorted(ELSEWHERE) == sorted(set(PROMISES) - here)
