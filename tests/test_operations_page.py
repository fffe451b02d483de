"""docs/operations.md has every log event and every degraded state, with advice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text()
EVENT = re.compile(r"[a-z]+\.[a-z_]+")
NAMED = re.compile(rf'"{EVENT.pattern}"')
LEAST = 9  # fixed parts of a sentence that are too short to identify it are skipped


@cache
def modules() -> list[ast.Module]:
    """Those that could name an event."""
    texts = (path.read_text() for path in sorted((ROOT / "burnd").rglob("*.py")))
    return [ast.parse(text) for text in texts if NAMED.search(text)]


def calls() -> Iterator[ast.Call]:
    for module in modules():
        yield from (node for node in ast.walk(module) if isinstance(node, ast.Call))


@cache
def events() -> set[str]:
    """Event names passed to the log; `tell` is the log at a level chosen before."""
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    found = set()
    for call in calls():
        to_log = isinstance(call.func, ast.Attribute) and call.func.attr in levels
        if call.args and (to_log or (isinstance(call.func, ast.Name) and call.func.id == "tell")):
            found |= {text for text in texts(call.args[0]) if EVENT.fullmatch(text)}
    return found


def texts(node: ast.AST) -> Iterator[str]:
    """Fixed parts of an expression's text."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def states() -> set[str]:
    """The texts of `status` when something is wrong, also with a database of opencode's."""
    status = ast.parse((ROOT / "burnd/server/methods/status.py").read_text())
    found = set()
    for node in ast.walk(status):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_degraded"):
            yields = [one.value for one in ast.walk(node) if isinstance(one, ast.Yield)]
            found |= {text for one in yields if isinstance(one, ast.Tuple) for text in texts(one.elts[0])}
    for node in ast.walk(ast.parse((ROOT / "burnd/harness/opencode/source.py").read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
            found |= set(texts(node.args[1]))
        elif isinstance(node, ast.Assign) and "detail" in ast.unparse(node.targets[0]):
            value = node.value.elts[0] if isinstance(node.value, ast.Tuple) else node.value
            found |= set(texts(value))
    return {text.strip(" (),:") for text in found if len(text.strip(" (),:")) >= LEAST}


def test_every_event_of_the_log_is_documented() -> None:
    """Every event is on the page."""
    assert len(events()) > 40
    assert {event for event in events() if f"`{event}`" not in PAGE} == set()


def test_no_unknown_event_is_documented() -> None:
    """Names on the page are those of the log; files are not events."""
    rooms = {event.partition(".")[0] for event in events()}
    told = {name for name in re.findall(r"`([a-z]+\.[a-z_]+)`", PAGE) if name.partition(".")[0] in rooms}
    assert told - events() - {"budget.command", "ledger.jsonl", "machine.id", "machine.json", "metrics.listen"} == set()


def test_every_degraded_state_is_documented() -> None:
    """Every reason of `burnctl status` is on the page."""
    assert len(states()) > 8
    assert "locked by another program" in states()
    assert {state for state in states() if state not in PAGE} == set()


def test_every_row_has_a_meaning_and_a_remedy() -> None:
    """For events of the first table there is nothing to do."""
    normal, others = PAGE.split("## Wait or report")
    for text, columns in ((normal, 2), (others, 3)):
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
        assert cells
        assert [row for row in cells if len(row) != columns or not all(row)] == []
