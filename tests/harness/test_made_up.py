"""A new harness is a package, an entry in the registry and a folder of cases: burnd with a made-up one does it all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.server.wire import PROJECT, Daemon, environment, running, until

PACKAGE = Path(__file__).parent / "made_up"
CASES = sorted((PACKAGE / "cases").iterdir())
SESSION = "3b0c1d2e-1111-4222-8333-444455556666"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the programs with the made-up harness: its package, and two lines in the registry."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("burnd", "burnctl", "packaging"):
        shutil.copytree(PROJECT / name, root / name)  # with what is compiled of it
    harness = root / "burnd" / "harness"
    shutil.copytree(PACKAGE, harness / "made_up", ignore=shutil.ignore_patterns("__pycache__", "cases"))
    registry = harness / "registry.py"
    entry = "from burnd.harness.made_up.product import PRODUCT as MADE_UP\n\nTYPE_CHECKING"
    text = registry.read_text().replace("\nTYPE_CHECKING", entry, 1)
    registry.write_text(text.replace("    OPENCODE,\n)", "    OPENCODE,\n    MADE_UP,\n)"))
    return root


class Machine:
    """A user's home with the logs of a case, and a daemon of the tree that has read them."""

    def __init__(self, tree: Path, home: Home) -> None:
        self.tree, self.home = tree, home

    def run(self, *command: str, **more: str) -> str:
        """Output of a program of the tree."""
        env = environment(self.home, PYTHONPATH=f"{self.tree}:{PROJECT}", **more)
        done = subprocess.run([sys.executable, *command], cwd=self.tree, env=env, capture_output=True, text=True)  # noqa: PLW1510
        assert done.stdout, done.stderr
        return done.stdout

    def burnctl(self, *command: str, **more: str) -> str:
        return self.run("-m", "burnctl", *command, **more)

    def ask(self, *command: str) -> Any:
        return json.loads(self.burnctl(*command, "--json"))


def write_case(home: Home, case: Path) -> None:
    shutil.copytree(case / "input", home.root.parent / ".made-up" / "sessions", dirs_exist_ok=True)


@pytest.fixture(scope="module")
def machine(tree: Path) -> Iterator[Machine]:
    """One for all tests that only ask, or that write what no other reads."""
    with tempfile.TemporaryDirectory(prefix="burnd-") as folder:
        home = Home(Path(folder) / "home")
        write_case(home, PACKAGE / "cases" / "a-session")
        with running(home, tree=str(tree)) as daemon:
            flush(daemon)
            yield Machine(tree, home)


def flush(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        assert wire.call("flush")["flushed"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_its_cases(tree: Path, home: Home, case: Path) -> None:
    """The turns in the ledger are those that the case expects."""
    write_case(home, case)
    with running(home, tree=str(tree)) as daemon:
        flush(daemon)
    lines = [json.loads(line) for line in home.ledger.read_text().splitlines()]
    turns = {line["record"]["messageId"]: line["record"] for line in lines if line["kind"] == "turn"}
    expected = {turn["messageId"]: turn for turn in json.loads((case / "expected.json").read_text())["turns"]}
    assert turns.keys() == expected.keys()
    assert {name: shown(turns[name], turn) for name, turn in expected.items()} == expected


def shown(turn: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The turn as far as a case states it."""
    tools = [
        " ".join(filter(None, (call["name"], call.get("target"), "!" if call.get("isError") else "")))
        for call in turn.get("toolCalls", ())
    ]
    counts = {name: turn["usage"].get(name, 0) for name in expected["usage"]}
    return {name: turn.get(name) for name in expected} | {"tools": tools, "usage": counts}


def test_it_is_recorded_searched_and_attributed(machine: Machine) -> None:
    """Its tokens are in the summary, its words in the search, its causes add up to its cost."""
    rows = {row["key"]: row for row in machine.ask("summary", "--by", "source")["rows"]}
    assert (rows["made-up"]["turns"], rows["made-up"]["usage"]["cacheRead"]) == (2, 6000)
    until(lambda: machine.ask("search", "squawk", "--source", "made-up")["hits"])
    (hit,) = machine.ask("search", "squawk", "--source", "made-up")["hits"]
    assert hit["sessionId"] == SESSION
    why = machine.ask("why", SESSION)
    causes = {cause["label"] for cause in why["causes"]}
    assert any("parrot.py" in label for label in causes)
    assert sum(cause["costUsd"] for cause in why["causes"]) == pytest.approx(why["totals"]["costUsd"])


def test_it_is_known_to_every_command(machine: Machine) -> None:
    """Status and doctor list it, it has a setting, its sessions can be resumed, `--source` completes it."""
    assert "made-up" in {source["name"] for source in machine.ask("status")["sources"]}
    checks = {check["name"]: check for check in machine.ask("doctor")["checks"]}
    assert checks["Made Up"]["says"] == f"1 session log below {machine.home.root.parent}/.made-up/sessions"
    settings = {setting["key"] for setting in machine.ask("config", "show")["settings"]}
    assert "made-up.roots" in settings
    assert machine.burnctl("resume", SESSION).strip().endswith(f"madeup --continue {SESSION}")
    assert "made-up" in machine.burnctl("completions", "words", "--", "summary", "--source", "")
    units = machine.burnctl("service", "install", "--print", "--manager", "systemd", MADE_UP_HOME="/data/made-up")
    assert "Environment=MADE_UP_HOME=/data/made-up\n" in units


def test_its_instruction_files_are_found(machine: Machine) -> None:
    """`search --memory` has the user's own, `overhead` that of a project."""
    (machine.home.root.parent / ".made-up" / "MADEUP.md").write_text("# Birds\n\nNever feed the cockatoo.\n")
    (entry,) = machine.ask("search", "--memory", "cockatoo")["entries"]
    assert entry["kind"] == "made-up"
    folder = machine.home.root.parent / "shop"
    folder.mkdir()
    (folder / "MADEUP.md").write_text("# Shop\n\nSell seeds.\n")
    find = "from burnctl.commands.overhead import instruction_files; import os, sys"
    show = "print(*(file.source for file in instruction_files(sys.argv[1], os.environ)))"
    assert machine.run("-c", f"{find}; {show}", str(folder)) == "made-up\n"


def test_a_run_of_it_claims_its_session(machine: Machine) -> None:
    """`burnctl run` knows the source by the program, and MCP the session by its variable."""
    programs = machine.home.root.parent / "bin"
    programs.mkdir()
    (programs / "madeup").write_text("#!/bin/sh\ncat $RELAYBURN_HOME/spool/*\n")
    (programs / "madeup").chmod(0o700)
    path = f"{programs}:{os.environ['PATH']}"
    claim = machine.burnctl("run", "--tag", "task=birds", "--", "madeup", PATH=path)
    assert json.loads(claim.splitlines()[0])["source"] == "made-up"
    pytest.importorskip("mcp")
    texts = "from burnctl import mcp_tools as m; print(m.OWN_SESSION, *(m._tool(one).parameters for one in m.OFFERS))"
    shown = machine.run("-c", texts)
    assert "MADE_UP_SESSION" in shown
    assert "'opencode', 'made-up'" in shown


def test_it_is_documented(tree: Path, home: Home) -> None:
    """The manual pages, the help and the file of settings name it, and the demo writes a session of it."""
    machine = Machine(tree, home)
    pages = "import make_man; print(*(page() for page in make_man.PAGES.values()))"
    assert machine.run("-c", f"import sys; sys.path.append('packaging'); {pages}").count("MADE_UP_HOME") == 2
    assert "made-up" in machine.burnctl("summary", "--help")
    table = machine.run("-c", "from tests.burnctl.pages import configuration; print(configuration())")
    assert "| Made Up | `made-up` | `madeup` | `~/.made-up/sessions` |" in table
    assert "- `made-up.roots` (" in table
    assert "| `MADE_UP_HOME` |" in table
    machine.run("-m", "burnd", "config", "init")
    assert "[made-up]\n" in home.config.read_text()
    folder = home.root / "demo"
    machine.run(
        "-c",
        f"from burnctl.demo_machine import Machine; print(len(Machine({str(folder)!r}).write_logs(1_780_000_000)))",
    )
    assert len(list((folder / "madeup" / "sessions").iterdir())) == 1
