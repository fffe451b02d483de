"""Writes recorded sessions back in their harness's own form: a recording in, files and what they lack out.

Each harness package has a module `restore` with `restore(recording)`, which is pure, and `find_logs(folders)`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MAIN = "main"
TITLE = "title:"  # prefix of the message ids of titles and summaries
MARK = {"restoredBy": "burnd"}  # the last key of every restored line: readers of burnd record nothing of it
THINKING = "thinking blocks left out, since a model accepts them only with signatures, which are not stored"
LOST = "texts or files no longer on disk, replaced by a note"
NO_CALL = "results left out, since the calls they answer are not stored"
SAVED = "long outputs not written back to files of their own; their first part is in the conversation"
NO_CONTEXT = "blocks recorded before burnd stored what a harness adds to a conversation (reminders, lists of tools)"
ID_LENGTH = 36  # of a UUID
NOTE = "[not stored by burnd]"
HOLE = "burnd"  # the key that replaces the content of a record in a stored line

Fields = Mapping[str, Any]


class Recording:
    """All that burnd has of a session: its facts, its responses by message id, and its content records in order."""

    def __init__(self, session: Fields, turns: Iterable[Fields], records: Iterable[Fields]) -> None:
        self.session = session
        self.id = str(session["sessionId"])
        self.folder = str(session.get("project") or "")
        self.turns = {str(turn["messageId"]): turn for turn in turns}
        self.records = list(records)
        self.missing: Counter[str] = Counter()

    def rails(self) -> list[str]:
        rails = dict.fromkeys(record["railId"] for record in self.records if not is_title(record))
        return sorted(rails, key=lambda rail: rail != MAIN)

    def title(self, name: str) -> str:
        titles = [record for record in self.records if record["messageId"] == TITLE + name]
        newest = max(titles, key=lambda record: int(record["n"]), default={})
        text = newest.get("text")
        return text if isinstance(text, str) else ""

    def lines(self, rails: Iterable[str]) -> Iterator[list[Fields]]:
        wanted = set(rails)
        lines: dict[tuple[str, str, int], dict[int, Fields]] = {}
        for record in self.records:
            if record["railId"] in wanted and not is_title(record):
                key = (record["railId"], record["messageId"], record["n"])
                lines.setdefault(key, {})[record["b"]] = record
        for blocks in lines.values():
            yield [blocks[b] for b in sorted(blocks)]

    def text(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        self.missing[LOST] += 1
        return NOTE

    def json(self, value: Any) -> Any:
        """A call's arguments or a result; a note in place of one that is lost."""
        if not isinstance(value, dict) or not {"blob", "lost"} <= value.keys():
            return value
        self.missing[LOST] += 1
        return NOTE

    def data(self, record: Fields) -> str | None:
        """A file in base64; None if it is lost or was not stored."""
        data = record["file"].get("data")
        if isinstance(data, str):
            return data
        self.missing[LOST] += 1
        return None


def cut_texts(value: Any, numbers: Mapping[str, int | str], shortest: int, longest: int | None = None) -> None:
    """Puts the numbers of records in place of the texts that they have, and cuts other very long ones, in place.

    `shortest` is the length of the shortest text with a number.
    """
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(one, str):
            if len(one) >= shortest and (number := numbers.get(one)) is not None:
                value[key] = {HOLE: number}
            elif longest is not None and len(one) > longest:
                value[key] = ""
        elif isinstance(one, dict | list):
            cut_texts(one, numbers, shortest, longest)


def filled(recording: Recording, value: Any, records: Mapping[Any, Fields], arguments: Callable[[Any], Any]) -> Any:
    """The value with the content of records in place of their numbers; `arguments` converts those of a call."""
    if isinstance(value, list):
        return [filled(recording, one, records, arguments) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {HOLE} or not isinstance(value[HOLE], int | str):
        return {name: filled(recording, one, records, arguments) for name, one in value.items()}
    record = records.get(value[HOLE], {})
    if (file := record.get("file")) is not None and not isinstance(record.get("text"), str):
        return f"data:{file['mime']};base64,{recording.data(record) or ''}"
    if (result := record.get("toolResult")) is not None:
        return recording.text(recording.json(result["content"]))
    if (use := record.get("toolUse")) is not None:
        return arguments(recording.json(use["input"]))
    return recording.text(record.get("text"))


class NewFile(NamedTuple):
    path: str
    text: str


class Restored(NamedTuple):
    """The files of a session, what they lack, and the arguments with which the harness imports the first."""

    files: Sequence[NewFile]
    missing: Mapping[str, int]
    load: tuple[str, ...] = ()


def is_title(record: Fields) -> bool:
    return str(record["messageId"]).startswith(TITLE)


def find_log_files(folders: Iterable[str], suffixes: tuple[str, ...]) -> dict[str, str] | None:
    """The log of each session by its id; None if no folder is there or one cannot be listed."""
    logs: dict[str, str] = {}
    errors: list[OSError] = []
    present = [folder for folder in folders if os.path.isdir(folder)]
    for folder in present:
        for below, _, names in os.walk(folder, onerror=errors.append):
            for name in names:
                suffix = next((one for one in suffixes if name.endswith(one)), None)
                if suffix is not None:
                    path, stem = os.path.join(below, name), name[: -len(suffix)]
                    logs.setdefault(os.path.basename(below), path)
                    logs[stem[-ID_LENGTH:]] = path
    return None if errors or not present else logs
