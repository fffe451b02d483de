"""`burnctl rebuild`: its confirmation and output; progress is shown at a terminal only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeConnection, fake_daemon
from tests.burnctl.invoke import run, seen


def rebuilt(params: dict[str, Any], talk: FakeConnection) -> dict[str, Any]:
    for done in (10, 55):
        talk.notify("progress", {"id": talk.id, "done": done, "total": 100})
    return {"rebuilt": "index", "turns": 0} if params.get("index") else {"rebuilt": "labels", "turns": 1234}


@pytest.mark.parametrize(
    ("flags", "asked", "said"),
    [
        ([], [{"index": True}], "the index is rebuilt\n"),
        (["--index"], [{"index": True}], "the index is rebuilt\n"),
        (["--reclassify"], [{"reclassify": True}], "1,234 requests are labelled\n"),
        (["--reclassify", "--force"], [{"reclassify": True, "force": True}], "1,234 requests are labelled\n"),
        (
            ["--reclassify", "--index"],
            [{"reclassify": True}, {"index": True}],
            "1,234 requests are labelled\nthe index is rebuilt\n",
        ),
    ],
)
def test_confirmation_and_result(home: Home, flags: list[str], asked: list[Any], said: str) -> None:
    with fake_daemon(home.root / "burnd.sock", rebuild=rebuilt) as server:
        done = run(home, "rebuild", *flags)
        assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
        assert [params for _, params in server.asked] == asked


def test_nothing_to_do_is_reported(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", rebuild={"rebuilt": "labels", "turns": 0}):
        assert run(home, "rebuild", "--reclassify").stdout == "every request was labelled already\n"
        assert run(home, "rebuild", "--reclassify", "--force").stdout == "no request has a new label\n"


def test_json(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", rebuild=rebuilt):
        done = run(home, "rebuild", "--reclassify", "--json")
    assert json.loads(done.stdout) == {"version": 1, "rebuilt": "labels", "turns": 1234}


def test_a_person_sees_how_far_it_is(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", rebuild=rebuilt):
        shown = seen(home, "rebuild", "--reclassify")
    assert "labelling requests ... 55%" in shown.text
    assert shown.text.endswith("\r\x1b[K1,234 requests are labelled\n")


def test_force_alone_is_a_mistake(home: Home) -> None:
    done = run(home, "rebuild", "--force")
    assert (done.returncode, done.stderr) == (
        2,
        "burnctl: rebuild: --force goes with --reclassify; see: burnctl help rebuild\n",
    )


def test_without_a_daemon(home: Home) -> None:
    assert run(home, "rebuild").returncode == 3
