"""Walks the case folders: what each turn of a prompt is labelled, from full commands and from the ledger alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnd.classify.activity import LABELS, Call, Walk, has_edits, label, retries, step
from burnd.classify.keywords import prompt_words
from burnd.classify.shell import verb
from burnd.classify.tools import kind

CASES = Path(__file__).parent / "cases"
FOLDERS = sorted(folder for folder in CASES.iterdir() if folder.is_dir())


def _call(fields: dict[str, Any]) -> Call:
    return Call(**{**fields, "paths": tuple(fields.get("paths", ()))})


def _read(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return content


def _classify(turns: list[list[Call]], words: tuple[str, ...], *, reasoned: bool) -> dict[str, Any]:
    walk = Walk()
    for turn in turns:
        walk = step(walk, turn)
    return {
        "labels": [label(turn, words, reasoned=reasoned) for turn in turns],
        "retries": [retries(turn) for turn in turns],
        "hasEdits": [has_edits(turn) for turn in turns],
        "promptRetries": walk.retries,
        "promptWords": list(words),
        "verbs": [verb(call.command or "") for turn in turns for call in turn if kind(call.name) == "shell"],
    }


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_case_comes_out_as_expected(folder: Path) -> None:
    given, expected = _read(folder, "input.json"), _read(folder, "expected.json")
    words, reasoned = prompt_words(given["prompt"]), given.get("reasoned", False)
    turns = [[_call(fields) for fields in turn] for turn in given["turns"]]
    assert _classify(turns, words, reasoned=reasoned) == expected
    kept = [[call._replace(command=call.command and verb(call.command)) for call in turn] for turn in turns]
    assert _classify(kept, words, reasoned=reasoned) == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_case_explains_itself(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "expected.json", "input.json"]
    assert (folder / "README.md").read_text(encoding="utf-8").strip()


def test_every_label_has_a_case_of_its_name() -> None:
    assert set(LABELS) <= {folder.name.removeprefix("label-") for folder in FOLDERS}
