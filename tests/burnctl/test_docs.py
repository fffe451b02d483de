"""docs/commands.md and docs/python-api.md agree with the programs."""

from __future__ import annotations

import argparse
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import burnctl
from burnctl import errors
from burnctl.cli import load
from burnctl.client import Client
from burnctl.commands import present
from burnctl.parser import parser_for
from burnctl.service.units import VARIABLES
from burnd.contract import methods
from burnd.paths import Home
from burnd.records.codec import encode
from tests.burnctl.fake_daemon import fake_daemon
from tests.burnctl.pages import API, COMMANDS, GENERATED, PROTOCOL, actions_of, page, protocol
from tests.make import turn
from tests.server.logs import conversation

ROOT = COMMANDS.parents[1]
DOCS = COMMANDS.parent


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_what_is_generated_is_fresh(path: Path) -> None:
    """On failure: run `python -m tests.burnctl.pages` and read the difference."""
    assert path.read_text() == page(path)


def test_the_tables_of_parameters_are_fresh() -> None:
    """Made from the table of methods by the same command."""
    assert PROTOCOL.read_text() == protocol(PROTOCOL.read_text())


def test_every_command_and_flag_is_documented() -> None:
    text = COMMANDS.read_text()
    for verb in present():
        assert f"### burnctl {verb}\n" in text
        parser = parser_for(verb, load(verb))
        for one in (parser, *actions_of(parser)):
            for action in one._actions:
                explained = action.help or isinstance(action, argparse._SubParsersAction)
                assert explained, f"{one.prog}: {action.dest} is not explained"
                for flag in action.option_strings:
                    assert flag in ("-h", "--help") or flag in text


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_every_command_that_a_page_shows_is_there(path: Path) -> None:
    """The verb and flags of every `burnctl ...` that is formatted as code."""
    shown = re.findall(r"(?<=`)burnctl [^`\n]+|(?<=^    )burnctl [^#\n]+", path.read_text(), re.MULTILINE)
    for line in shown:
        verb, *words = re.split(r"\[?-- ", line)[0].split()[1:]
        if verb in ("COMMAND", "help", "--version"):
            continue
        assert verb in present(), line
        parser = parser_for(verb, load(verb))
        known = {flag for one in (parser, *actions_of(parser)) for a in one._actions for flag in a.option_strings}
        given = {word.strip("[]") for word in words if word.lstrip("[").startswith("-")}
        assert given <= known, line


def test_every_room_of_the_daemon_is_on_the_map() -> None:
    """docs/architecture.md names each folder and each file at the top of burnd, and none that is not there."""
    text = (DOCS / "architecture.md").read_text()
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `burnd/")]
    told = {name.removeprefix("burnd/").rstrip("/") for row in rows for name in re.findall(r"`([\w./]+)`", row)}
    there = [path for path in (ROOT / "burnd").iterdir() if not path.name.startswith("__")]
    assert told == {path.name for path in there if path.suffix == ".py" or any(path.glob("*.py"))}


def test_every_room_of_the_client_is_on_the_map() -> None:
    """Each of its folders, and none that is not there."""
    rows = [line for line in (DOCS / "architecture.md").read_text().splitlines() if line.startswith("| `burnctl/")]
    folders = {name for row in rows[1:] for name in re.findall(r"`(?:burnctl/)?(\w+)/`", row.split(" | ")[0])}
    there = [path for path in (ROOT / "burnctl").iterdir() if not path.name.startswith("__")]
    assert folders == {path.name for path in there if any(path.glob("*.py"))}


def test_every_file_that_the_map_names_is_there() -> None:
    """A module or a test that was moved is not sought where it was."""
    text = (DOCS / "architecture.md").read_text()
    for name in re.findall(r"`((?:burnd|burnctl|tests)/[\w/]+\.py)`", text):
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize(
    ("page", "heading"), [("contributing.md", "## Six questions"), ("architecture.md", "**The path of one line.**")]
)
def test_answers_for_contributors_name_what_exists(page: str, heading: str) -> None:
    """Each function and file in the answers of contributing.md, and in the paths of architecture.md, exists."""
    text = (DOCS / page).read_text().partition(heading)[2].partition("\n## ")[0]
    files = re.findall(r"`((?:burnd|tests)/[\w/]+\.py)`", text)
    assert len(files) > 8
    code = "\n".join((ROOT / name).read_text() for name in files)
    for name in re.findall(r"`([A-Z]\w+(?:\.\w+)?|owner_of|catch_up|why)`", text):
        for part in name.split("."):
            assert re.search(rf"(?:class|def) {part}\b|^{part}\b", code, re.MULTILINE), name


def test_every_link_leads_somewhere() -> None:
    """Between pages, to their headings, to pictures; and every page can be reached from the README."""
    reached = set()
    for path in (ROOT / "README.md", *DOCS.glob("*.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            place, _, heading = target.partition("#")
            if "://" in target:
                continue
            page = (path.parent / place).resolve() if place else path
            assert page.exists(), f"{path.name}: {target}"
            assert not heading or heading in headings(page), f"{path.name}: {target}"
            reached |= {page} if path.name == "README.md" else set()
    assert set(DOCS.glob("*.md")) <= reached


def headings(path: Path) -> set[str]:
    """As a link names them: small letters, dashes, no other signs."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_exit_code_is_documented() -> None:
    text = COMMANDS.read_text()
    for code in (errors.OK, errors.FAILED, errors.USAGE, errors.NOT_RUNNING, errors.VERSION_MISMATCH):
        assert f"| {code} |" in text


def test_every_public_name_of_the_client_is_documented() -> None:
    """The page names every method of `Client` that the protocol has not, every error, and nothing that is not there."""
    text = API.read_text()
    of_socket = {name.replace(".", "_") for name in methods()}
    for name in (name for name in dir(Client) if not name.startswith("_") and name not in of_socket):
        assert f"`{name}(" in text or f"`{name}`" in text, name
    for name in burnctl.__all__:
        assert f"`{name}`" in text
    for name in re.findall(r"^(?:\||-) `(\w+)\(", text, re.MULTILINE):
        assert hasattr(Client(), name), name


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", API.read_text(), re.DOTALL)


def test_the_example_of_the_client_runs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    answers: dict[str, Any] = {"stamp": {}, "flush": {"sources": []}, "status": {"ledger": {"turns": 3}}}
    with fake_daemon(home.root / "burnd.sock", **answers) as server:
        exec(examples()[0], {})
    assert [method for method, _ in server.asked] == ["stamp", "flush", "status"]


def test_the_example_of_an_annotation_runs(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    rows = [{"key": "opus", "costUsd": 1.5}, {"key": "unpriced", "costUsd": None}]
    with fake_daemon(home.root / "burnd.sock", summary={"rows": rows}):
        exec(examples()[1], {})
    assert capsys.readouterr().out == "1.5\n"


def test_the_example_of_the_ledger_runs(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    home.root.mkdir()
    revised = msgspec.structs.replace(turn(), rev=2)
    home.ledger.write_bytes(encode(turn()) + b"not a line\n" + encode(revised))
    exec(examples()[2], {})
    assert capsys.readouterr().out == f"{revised.usage.output}\n"


def test_the_example_of_a_reader_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = examples()[3]
    path = tmp_path / re.findall(r'path = "(.*?)"', code)[0]
    path.parent.mkdir()
    log = conversation("s", "one answer", "another")
    path.write_bytes(b"".join(line + b"\n" for line in log.lines))
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out == "14\n"


def test_the_example_of_the_prices_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(examples()[4], {})
    assert Decimal(capsys.readouterr().out) == Decimal("0.015")


def test_every_variable_is_documented() -> None:
    assert [name for name in VARIABLES if name not in (DOCS / "service.md").read_text()] == []
