"""`burnctl export`: every turn in each of the formats, in files that are whole or not there."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from burnctl.commands.export import COLUMNS
from burnd.paths import Home
from tests import warm
from tests.burnctl.exported import MACHINE, TURNS, export, page, pages, turn
from tests.burnctl.fake_daemon import FakeConnection, Refused, fake_daemon
from tests.burnctl.invoke import environment, run, seen
from tests.burnctl.runner import BURNCTL

NAMES = [name for name, _, _ in COLUMNS]


def test_lines_of_json(home: Home) -> None:
    """One object a turn, as the socket gave it, with the machine before it."""
    done = export(home)
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"machine": "box", "machineId": MACHINE, **one} for one in TURNS
    ]
    assert done.asked == [{"limit": 2000}, *({"limit": 2000, "after": after} for after in ("2", "4", "6"))]


def test_csv(home: Home) -> None:
    """A line of names, then one a turn; amounts in digits alone, tags as JSON, what is not known empty."""
    rows = list(csv.DictReader(io.StringIO(export(home, "--format", "csv").stdout)))
    assert list(rows[0]) == NAMES
    assert len(rows) == len(TURNS)
    first, last = rows[0], rows[-1]
    assert (first["machine"], first["session_id"], first["project"]) == ("box", "s1", "/home/dev/a, b")
    assert (first["cost_usd"], first["cache_create_1h"], first["has_edits"]) == ("0.0000231", "6", "true")
    assert json.loads(first["tags"]) == TURNS[0]["tags"]
    assert (last["cost_usd"], last["open"], last["prompt_retries"], last["tags"]) == ("", "true", "", "{}")


def test_a_cell_of_csv_is_no_formula(home: Home) -> None:
    """Names come from logs, and spreadsheets work out what begins like a formula; the other formats are as it is."""
    odd = page(turn(0, project="=cmd|' /C calc'!A0", model="@sum", gitBranch="-x"))
    (row,) = csv.DictReader(io.StringIO(export(home, "--format", "csv", export=odd).stdout))
    assert (row["project"], row["model"], row["git_branch"]) == ("'=cmd|' /C calc'!A0", "'@sum", "'-x")
    assert json.loads(export(home, export=odd).stdout)["model"] == "@sum"


def test_raw_csv_has_values_as_they_are(home: Home) -> None:
    """A database runs no formula; only CSV has such a form."""
    odd = page(turn(0, project="=cmd", model="@sum", gitBranch="-x"))
    (row,) = csv.DictReader(io.StringIO(export(home, "--format", "csv", "--raw", export=odd).stdout))
    assert (row["project"], row["model"], row["git_branch"]) == ("=cmd", "@sum", "-x")
    assert (row["has_edits"], row["open"], row["cost_usd"], row["prompt_retries"]) == ("true", "false", "0.0000231", "")
    assert export(home, "--raw").returncode == 2


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_file_is_whole_or_as_it_was(home: Home, folder: Path, form: str) -> None:
    """If burnd fails midway, the old file is unchanged and no other file is left."""
    path = folder / "turns"
    path.write_text("before")

    def fails(params: dict[str, Any], talk: FakeConnection) -> dict[str, Any]:
        if params.get("after"):
            raise Refused(-32603, "it went wrong")
        return pages()(params, talk)

    failed = export(home, "--format", form, "-o", str(path), export=fails)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert path.read_text() == "before"
    assert sorted(os.listdir(folder)) == ["home", "turns"]
    done = export(home, "--format", form, "-o", str(path))
    assert done.stderr == f"7 turns written to {path}\n"
    assert len(path.read_text().splitlines()) == 7 + (form == "csv")
    assert sorted(os.listdir(folder)) == ["home", "turns"]


def test_what_a_killed_export_left_is_removed(home: Home, folder: Path) -> None:
    """But not the file of one that runs, nor anything else."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    (folder / f".turns.{gone.pid}.part").touch()
    others = [f".turns.{os.getpid()}.part", f".other.{gone.pid}.part", ".turns.x.part"]
    for name in others:
        (folder / name).touch()
    export(home, "-o", str(folder / "turns"))
    assert sorted(os.listdir(folder)) == sorted([*others, "home", "turns"])


def test_a_missing_folder_is_reported(home: Home, folder: Path) -> None:
    done = export(home, "-o", str(folder / "none" / "turns.jsonl"))
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr


def test_pages_shrink_where_they_are_too_large(home: Home) -> None:
    """Turns may have much said of them."""

    def narrow(params: dict[str, Any], talk: FakeConnection) -> dict[str, Any]:
        if params["limit"] > 3:
            raise Refused(-32002, "too large")
        return pages(5)(params, talk)

    assert len(export(home, export=narrow).stdout.splitlines()) == 7


def test_filters_are_passed_on(home: Home) -> None:
    done = export(
        home, "--since", "7d", "--until", "2026-11-16", "--source", "opencode", "--tag", "a=b", "--tag", "c=d=e",
        "--model", "gpt-5", "--workflow", "wf", "--session", "s", "--agent", "x", "--activity", "coding",
        "--branch", "main", "--provider", "openai", "--project", "github.com/dev/ab",
    )  # fmt: skip
    assert done.asked[0] == {
        "since": "7d",
        "until": "2026-11-16",
        "tz": "UTC",
        "source": "opencode",
        "tags": {"a": "b", "c": "d=e"},
        "model": "gpt-5",
        "workflow": "wf",
        "session": "s",
        "agent": "x",
        "activity": "coding",
        "branch": "main",
        "provider": "openai",
        "project": "github.com/dev/ab",
        "limit": 2000,
    }


def test_a_reader_that_goes_ends_it_quietly(home: Home) -> None:
    """`burnctl export | head -1` is no failure to speak of."""
    with fake_daemon(home.root / "burnd.sock", export=lambda _p, _t: {"turns": TURNS * 500, "next": "0"}):
        program = warm.Popen(
            [*BURNCTL, "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(home)
        )
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        assert program.wait(30) == 141
        assert program.stderr.read() == b""
        program.stderr.close()


def test_the_machine_is_called_by_its_host_name(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", export=pages()):
        first = run(home, "export").stdout.splitlines()[0]
    assert json.loads(first)["machine"] == os.uname().nodename


def test_a_terminal_gets_no_escape_sequences(home: Home) -> None:
    """F74: not in CSV at a terminal; in a pipe values are unchanged, since programs need them."""
    odd = turn(0, project="/p/\x1b]52;c;aGk=\x07x", gitBranch="\u202eniam")
    with fake_daemon(home.root / "burnd.sock", export={"turns": [odd], "next": None}):
        shown = seen(home, "export", "--format", "csv").text
        piped = run(home, "export", "--format", "csv").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "/p/x" in shown
    assert "\x1b]52;c;aGk=\x07" in piped
