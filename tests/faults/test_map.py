"""Every promise has its proof: F01 to F86 are each quoted by a test, here or at a place that says why it is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PROMISES = {f"F{n:02d}" for n in range(1, 87)}
ELSEWHERE = {
    "F23": ("sources/test_watch.py", "only from inside can a handler be made to raise and its thread to die"),
    "F28": ("sources/test_watch.py", "an emitter that says nothing has to be put in the place of the kernel's"),
    "F50": ("ledger/test_keeping.py", "the clock must run thirty years ahead, and no other's clock may"),
    "F71": ("server/test_requests.py", "pages and frames belong to the tests of the protocol itself"),
    "F73": ("burnctl/test_client.py", "it is burnctl that meets a daemon of another version"),
    "F74": ("burnctl/test_render.py", "it is burnctl that writes to a terminal"),
    "F77": ("server/test_status.py", "a source that always fails has to be put into the daemon"),
    "F79": ("ledger/test_keeping.py", "clocks are set only from inside"),
    "F84": ("test_daemon.py", "what is imported where, without a running daemon"),
}


def _quoted(path: Path) -> Iterator[tuple[str, str]]:
    """The promises in the docstrings of a file's tests, ranges included, with the tests' names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            said = ast.get_docstring(node) or ""
            for first, last in re.findall(r"F(\d\d)(?:-F(\d\d))?", said):
                for n in range(int(first), int(last or first) + 1):
                    yield f"F{n:02d}", node.name


def test_every_promise_is_proved() -> None:
    """What can go wrong, and the test of what happens then, are found from one another by the F-number."""
    here = {promise for path in Path(__file__).parent.glob("test_*.py") for promise, _ in _quoted(path)}
    assert PROMISES - here - ELSEWHERE.keys() == set()
    for promise, (place, why) in ELSEWHERE.items():
        assert promise in {found for found, _ in _quoted(TESTS / place)}, f"{promise} is not in {place}, where {why}"
        assert promise not in here, f"{promise} is proved here by now: leave it out of the table"
