"""docs/protocol.md is true: every method is on it, and every request it shows is answered in the shape it shows."""

from __future__ import annotations

import re
import time
from typing import Any

from burnd import protocol
from burnd.contract import LONG_S
from burnd.paths import Home
from burnd.server.methods import METHODS
from tests.server.documented import ANYTHING, DOCS, MAPS, Shown, furnish, shown
from tests.server.wire import Daemon, Wire, running

RECORDS = {"records", "turn", "causes"}


def test_every_method_is_documented() -> None:
    """Every method is on the page, and the page has no others."""
    assert sorted(METHODS) == sorted(method.method for method in shown())


def test_every_parameter_is_documented() -> None:
    """By its name, in its method's section."""
    text = DOCS.read_text()
    shared = text.split("## Reports\n", 1)[1].split("\n### ", 1)[0]
    for name, method in METHODS.items():
        if f"### `{name}`\n" not in text:
            continue  # covered by the test above
        section = text.split(f"### `{name}`\n", 1)[1].split("\n### ", 1)[0]
        for field in (one.wire for one in method.params.params.values()):
            said = any(f"`{field}`" in part or f'"{field}"' in part for part in (section, shared))
            assert said, f"{name}: {field}"


def test_how_long_a_method_may_take_is_documented() -> None:
    """Adding the most that a request may hold, too, is given longer than a question."""
    row = next(line for line in DOCS.read_text().splitlines() if line.startswith("| time for a request | 10 s;"))
    _, _, long, endless = row.split(";")
    for said, within in ((long, LONG_S), (endless, None)):
        assert set(re.findall("`([^`]+)`", said)) == {
            name for name, one in METHODS.items() if one.params.deadline == within
        }
    assert METHODS["sessions.append"].params.deadline == LONG_S


def test_every_error_is_documented() -> None:
    text = DOCS.read_text()
    for code, name in protocol.NAMES.items():
        assert f"| {code} | `{name}` |" in text


def test_every_request_is_answered_as_shown(home: Home) -> None:
    """Keys and types of each answer are those on the page."""
    furnish(home)
    with running(home) as daemon:
        with daemon.wire() as wire:
            wire.call("flush")
            while wire.call("status")["search"]["pending"]:  # until then, search answers with a note
                time.sleep(0.02)
        for method in shown():
            check(daemon, method)
        assert daemon.process.wait(30) == 0


def check(daemon: Daemon, method: Shown) -> None:
    assert method.request["method"] == method.method
    with daemon.wire() as wire:
        given = method.request.get("params", {})
        answer = wire.ask(method.method, **given)
        assert "result" in answer, (method.method, answer)
        compare(answer["result"], method.answer["result"], method.method)
        for notification in method.notifications:
            heard = _provoke(daemon, wire)
            assert heard["method"] == notification["method"]
            compare(heard["params"], notification["params"], method.method)


def _provoke(daemon: Daemon, wire: Wire) -> dict[str, Any]:
    """Makes a turn land, and receives it."""
    from tests.harness.claude_code.transcript import text
    from tests.server.logs import conversation, write

    log = conversation("tailed")
    log.says("msg_03A", text("words"), model="claude-sonnet-4-5")
    write(daemon.home, log, "tailed")
    heard = wire.line()
    assert heard is not None
    return heard


def compare(found: Any, documented: Any, where: str) -> None:
    """True if two values have the same shape. A null or an empty list matches anything."""
    name = where.rpartition(".")[2]
    if found is None or documented is None or name in MAPS | ANYTHING:
        return
    if isinstance(documented, dict):
        assert isinstance(found, dict), where
        if name not in RECORDS:
            assert sorted(found) == sorted(documented), where
        for key in found.keys() & documented.keys():
            compare(found[key], documented[key], f"{where}.{key}")
    elif isinstance(documented, list):
        assert isinstance(found, list), where
        for item in found if documented else ():
            compare(item, documented[0], where)
    elif isinstance(documented, bool) or isinstance(found, bool):
        assert type(found) is type(documented), where
    elif isinstance(documented, int | float):
        assert isinstance(found, int | float), where
    else:
        assert type(found) is type(documented), where
