"""Reads large texts while some of their packs are damaged: the others are complete, and nothing is guessed."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from burnd.content import recall as recall_module
from burnd.content.recall import Recall, Spot
from burnd.ledger.content import ContentStore
from burnd.records import BlobRef, Content
from tests.make import START_MS, append_content, text, tool_result

Damage = Callable[[bytes], bytes | None]
SESSIONS = 6


@cache
def said(n: int) -> str:
    """Long, and hard to compress, so that a pack is more than a few bytes."""
    return f"session {n} " + " ".join(str(random.Random(f"{n}{i}").random()) for i in range(400))


def with_one_byte_changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x5A]) + data[place + 1 :]


DAMAGES: dict[str, Damage] = {
    "cut short": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "something else": lambda data: b"\x00" * len(data),
    "one byte of its middle": lambda data: with_one_byte_changed(data, len(data) // 2),
    "its size": lambda data: with_one_byte_changed(data, 6),
    "how its size is told": lambda data: with_one_byte_changed(data, 4),
    "gone": lambda _: None,
}


def damage(path: Path, numbers: list[int], how: Damage) -> None:
    with sqlite3.connect(path) as db:
        packs = db.execute("SELECT id, data FROM pack ORDER BY id").fetchall()
        assert len(packs) == SESSIONS
        for number in numbers:
            pack, data = packs[number]
            changed = how(data)
            if changed is None:
                db.execute("DELETE FROM pack WHERE id = ?", (pack,))
            else:
                db.execute("UPDATE pack SET data = ? WHERE id = ?", (changed, pack))


def made(folder: Path) -> list[tuple[str, list[Spot]]]:
    """Sessions with a text and a result each, in a separate pack, and the places of their records."""
    store = ContentStore(folder)
    found = []
    for n in range(SESSIONS):
        records = [text("m", said(n), session_id=f"s{n}"), tool_result("r", said(n + 100), session_id=f"s{n}")]
        placed = append_content(store, records, START_MS)
        found.append((f"s{n}", [Spot(item.position, item.length) for item in placed]))
    store.close()
    return found


def shown(record: Content | None) -> tuple[str, str | None]:
    """Text of a record, and the note for lost text."""
    assert record is not None
    if record.tool_result is not None:
        raw = bytes(record.tool_result.content).decode()
        return (raw.strip('"'), None) if '"lost"' not in raw else ("", "damaged" if "damaged" in raw else "missing")
    return ("", record.text.lost) if isinstance(record.text, BlobRef) else (str(record.text), None)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_pack_takes_no_other_with_it(tmp_path: Path, how: str) -> None:
    """In one read of all, texts of intact packs are complete, and damaged ones are marked."""
    wanted = made(tmp_path)
    damage(tmp_path / "blobs.db", [1, 4], DAMAGES[how])
    recall = Recall(tmp_path)
    for _ in range(2):  # the second time some packs are held in memory
        for n, records in enumerate(recall.records(wanted)):
            whole = [(said(n), None), (said(n + 100), None)]
            found = [shown(record) for record in records]
            assert (found == whole) == (n not in (1, 4))
            said_lost = ("", "missing" if how == "gone" else "damaged")
            assert all(one in (before, said_lost) for one, before in zip(found, whole, strict=True))
    recall.close()


@pytest.mark.parametrize("how", DAMAGES)
def test_the_beginning_of_a_damaged_text_is_its_beginning_or_nothing(tmp_path: Path, how: str) -> None:
    """If only a few lines are read, no hash can be checked, and a short text is still marked as cut."""
    wanted = [(session, [replace(spot, at_most=100) for spot in spots]) for session, spots in made(tmp_path)]
    damage(tmp_path / "blobs.db", [1, 4], DAMAGES[how])
    recall = Recall(tmp_path)
    for n, records in enumerate(recall.records(wanted)):
        for record, whole in zip(records, (said(n), said(n + 100)), strict=True):
            found, lost = shown(record)
            assert (lost is not None and n in (1, 4)) or (len(found) >= 90 and whole.startswith(found))
    recall.close()


@pytest.mark.parametrize("how", DAMAGES)
def test_no_text_is_taken_for_another_that_was_unpacked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """With a buffer for one pack only, which is reused, no text shows data of another."""
    monkeypatch.setattr(recall_module, "_CACHE_BYTES", 1)
    wanted = made(tmp_path)
    damage(tmp_path / "blobs.db", [1, 4], DAMAGES[how])
    recall = Recall(tmp_path)
    for n, at_most in [(n, at_most) for n in (0, 1, 2, 1, 5, 4, 3, 0) for at_most in (None, 100, 5000)]:
        session, spots = wanted[n]
        (records,) = recall.records([(session, [replace(spot, at_most=at_most) for spot in spots])])
        for record, whole in zip(records, (said(n), said(n + 100)), strict=True):
            found, lost = shown(record)
            enough = len(whole) if at_most is None else at_most * 9 // 10
            assert (lost is not None and n in (1, 4)) or (len(found) >= enough and whole.startswith(found))
    recall.close()


def test_a_damaged_line_takes_no_other_with_it(tmp_path: Path) -> None:
    """With any byte of a sidecar changed, the other records are readable, and nothing is raised."""
    ((session, spots), *_) = made(tmp_path)
    store = ContentStore(tmp_path)
    more = append_content(store, [text(f"m{n}", f"small {n}", session_id=session) for n in range(3)], START_MS)
    store.close()
    spots = [*spots, *(Spot(item.position, item.length) for item in more)]
    path = tmp_path / f"{session}.jsonl"
    sound, recall = path.read_bytes(), Recall(tmp_path)
    ((*whole,),) = recall.records([(session, spots)])
    rng = random.Random(5)
    for _ in range(300):
        hit = rng.randrange(len(spots))
        place = spots[hit].position + rng.randrange(spots[hit].length)
        path.write_bytes(sound[:place] + rng.choice([b"\0", b"{", b'"', b"\n", b"7"]) + sound[place + 1 :])
        (found,) = recall.records([(session, spots)])
        assert [record for n, record in enumerate(found) if n != hit] == [*whole[:hit], *whole[hit + 1 :]]
    path.write_bytes(
        re.sub(rb'"content":{"blob":"\w+"', lambda found: b'"content":{"blob":'.ljust(len(found[0]), b"1"), sound)
    )
    ((first, no_reference, *rest),) = recall.records([(session, spots)])
    assert [first, *rest] == [whole[0], *whole[2:]]
    assert no_reference is None
    recall.close()
