"""Commands with a burnd of another release: one that lacks fields, parameters or methods, or has more of them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burnctl import cli
from burnctl.client import Client
from burnctl.errors import VERSION_MISMATCH, MissingField
from burnd import __version__, protocol
from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeDaemon, Refused, fake_daemon
from tests.server.documented import SESSION, shown

ANSWERS: dict[str, Any] = {one.method: one.answer["result"] for one in shown()}
for paged in [answer for answer in ANSWERS.values() if "next" in answer]:
    paged["next"] = None  # each answer is the only page
VERBS = (
    ["overview"],
    ["status"],
    ["summary"],
    ["daily"],
    ["limits"],
    ["why", SESSION],
    ["waste"],
    ["overhead"],
    ["hotspots"],
    ["compare"],
    ["flow", SESSION],
    ["sessions"],
    ["show", SESSION],
    ["search", "bug"],
    ["stamps", "list"],
    ["pricing", "show", "claude-sonnet-4-5"],
    ["export"],
    ["statusline"],
)


@pytest.fixture
def server(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A burnd that answers every method as docs/protocol.md shows it."""
    path = home.root / "burnd.sock"
    monkeypatch.setenv("BURND_SOCKET", str(path))
    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    monkeypatch.setenv("CI", "1")
    with fake_daemon(path) as made:
        made.answers = dict(ANSWERS)
        yield made


def names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return value.keys() | {name for item in value.values() for name in names_in(item)}
    return {name for item in value for name in names_in(item)} if isinstance(value, list) else set()


def without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: without(item, name) for key, item in value.items() if key != name}
    return [without(item, name) for item in value] if isinstance(value, list) else value


def all_but(name: str) -> dict[str, Any]:
    """All answers without a field; those of `summary` have a row with the requested dimensions."""

    def summary(params: dict[str, Any], _: object) -> Any:
        by = params.get("by", "model").split(",")
        keys = {one: "2026-11-16" if one == "day" else "x" for one in by}
        row = ANSWERS["summary"]["rows"][0] | {"key": keys[by[0]]} | ({"keys": keys} if len(by) > 1 else {})
        row |= {"stamped": False, "parent": None, "depth": 0, "subtree": ANSWERS["summary"]["totals"]}
        return without(ANSWERS["summary"] | {"by": ",".join(by), "rows": [row]}, name)

    return {method: without(answer, name) for method, answer in ANSWERS.items()} | {"summary": summary}


def main(verb: list[str]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a process closes its connection when it ends
        try:
            return cli.main(verb)
        finally:
            gc.collect(1)


def test_a_field_that_burnd_does_not_send_is_a_message(server: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    """With each field of each answer dropped everywhere, the command works or names the remedy."""
    failures = []
    for verb in VERBS:
        server.answers, server.asked = all_but(""), []
        assert main(verb) == 0, (verb, capsys.readouterr())
        methods = {method for method, _ in server.asked}
        for name in sorted(set().union(*(names_in(ANSWERS[method]) for method in methods)) - {"version"}):
            server.answers = all_but(name)
            try:
                code = main(verb)
            except Exception as error:  # noqa: BLE001 - all of them are listed
                failures.append((verb, name, repr(error)))
                continue
            err = capsys.readouterr().err
            if code == VERSION_MISMATCH and "burnctl restart" not in err:
                failures.append((verb, name, err))
    assert failures == []


def test_the_message_has_both_releases(server: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    status = ANSWERS["status"] | {"daemon": {**ANSWERS["status"]["daemon"], "version": "0.0.9"}}
    server.answers |= {"summary": without(ANSWERS["summary"], "totals"), "status": status}
    assert main(["summary"]) == VERSION_MISMATCH
    start = f"burnctl: burnd 0.0.9 runs, and this is burnctl {__version__}: "
    assert capsys.readouterr().err == f"{start}burnd's answer has no 'totals'; restart it: burnctl restart\n"

    def older(*_: Any) -> None:
        raise Refused(protocol.BAD_PARAMS, "unknown parameter 'quality'")

    server.answers["summary"] = older
    assert main(["summary"]) == VERSION_MISMATCH
    assert capsys.readouterr().err == f"{start}unknown parameter 'quality'; restart it: burnctl restart\n"
    del server.answers["summary"]
    assert main(["summary"]) == VERSION_MISMATCH
    assert capsys.readouterr().err.startswith(f"{start}there is no method summary")


def test_a_fault_of_a_command_is_not_taken_for_another_release(
    server: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    from burnctl.commands import summary

    rows: dict[str, int] = {}
    monkeypatch.setattr(summary, "run", lambda _: rows["mistyped"])
    with pytest.raises(KeyError, match="mistyped"):
        cli.main(["summary"])


def test_programs_get_an_error_that_is_a_key_error(server: FakeDaemon, home: Home) -> None:
    server.answers["summary"] = without(ANSWERS["summary"], "totals")
    with Client(Path(home.root / "burnd.sock")) as client:
        answer: dict[str, Any] = dict(client.call("summary"))
        with pytest.raises(KeyError):
            answer["totals"]
        with pytest.raises(MissingField, match="has no 'totals'"):
            client.call("summary")["totals"]
