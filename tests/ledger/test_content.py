"""Content is read back unchanged, stored once when shared, and deleted on request."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnd.content.recall import Blobs, Recall
from burnd.errors import SyncFailed
from burnd.ledger import blobs
from burnd.ledger.blobs import BlobStore, Pack, sha_of
from burnd.ledger.content import ContentStore, EncodedRecord, encode_records
from burnd.records import BlobRef, Content, File
from burnd.records.codec import clean
from tests.make import START_MS, append_content, at, examples, read_content, text, tool_result, tool_use

NOW = START_MS + 3_600_000
BIG = "a long answer, said once. " * 320  # 8 KB


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "content")


def blob_count(store: ContentStore) -> int:
    with sqlite3.connect(store.sidecars.folder / "blobs.db") as db:
        return int(db.execute("SELECT count(*) FROM blob").fetchone()[0])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=2000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.text(st.characters(), max_size=3000), max_size=3), json_values, json_values, st.binary(max_size=3000)
)
def test_content_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], given_to: Any, came_back: Any, image: bytes
) -> None:
    """Texts, tool inputs, results and images of any size and content round-trip, inline or as blobs."""
    store = ContentStore(tmp_path_factory.mktemp("content") / "content", inline_bytes=100)
    records = [text(f"m{n}", words) for n, words in enumerate(texts)]
    records += [tool_use("u", given_to), tool_result("r", came_back)]
    records += [text("f", None, kind="file", file=File(mime="image/png", data=image))]  # type: ignore[arg-type]
    append_content(store, records, NOW)
    expected = [msgspec.structs.replace(r, text=clean(r.text)) if isinstance(r.text, str) else r for r in records]
    assert read_content(store, "s1") == expected
    store.close()


def test_json_that_looks_like_a_reference_is_not_one(store: ContentStore) -> None:
    """A tool input that has a reference's own shape is still only a tool input."""
    trick = {"blob": sha_of(b"x"), "bytes": 1}
    append_content(store, [tool_use("u", trick), tool_result("r", trick)], NOW)
    use, result = read_content(store, "s1")
    assert use.tool_use is not None
    assert result.tool_result is not None
    assert msgspec.json.decode(use.tool_use.input) == msgspec.json.decode(result.tool_result.content) == trick


def test_the_threshold_is_exact(store: ContentStore) -> None:
    """511 bytes stay inline, 512 go to a blob; bytes count, not characters."""
    append_content(store, [text("a", "x" * 511), text("b", "x" * 512), text("c", "é" * 256)], NOW)
    stored = [placed.record.text for placed in store.stored("s1")]
    assert [isinstance(t, BlobRef) for t in stored] == [False, True, True]


def test_system_prompts_and_binaries_are_always_blobs(store: ContentStore) -> None:
    """However small they are."""
    image = text("f", None, kind="file", file=File(mime="image/png", data=b"tiny"))  # type: ignore[arg-type]
    append_content(store, [text("s", "be good", role="system"), image], NOW)
    assert blob_count(store) == 2
    assert [r.text for r in read_content(store, "s1", "s")] == ["be good"]


def test_an_answer_shared_by_six_forks_is_stored_once(store: ContentStore) -> None:
    """An 8 KB answer that six sessions hold is one blob, and each session reads it."""
    for n in range(6):
        append_content(store, [text("m1", BIG, session_id=f"fork{n}")], NOW)
    assert blob_count(store) == 1
    for n in range(6):
        assert [r.text for r in read_content(store, f"fork{n}")] == [BIG]


def test_one_message_can_be_requested(store: ContentStore) -> None:
    append_content(store, [text("m1", "one"), text("m2", "two"), text("m1", "more", b=1)], NOW)
    assert [r.text for r in read_content(store, "s1", "m1")] == ["one", "more"]
    assert read_content(store, "s1", "nobody") == []
    assert read_content(store, "no such session") == []


def test_the_newest_record_counts(store: ContentStore) -> None:
    """A block that was written again with other text reads as the newer one, in its old place."""
    append_content(store, [text("m1", "draft"), text("m2", "after")], NOW)
    append_content(store, [text("m1", "final")], NOW)
    assert [r.text for r in read_content(store, "s1")] == ["final", "after"]


def test_a_missing_or_damaged_blob_is_marked(store: ContentStore) -> None:
    """A lost blob is marked and keeps its hash; the rest of the session is readable."""
    append_content(store, [text("m1", BIG)], NOW)
    append_content(store, [text("m2", BIG + "!"), text("m3", "short")], NOW)
    with sqlite3.connect(store.sidecars.folder / "blobs.db") as db:
        db.execute("DELETE FROM blob WHERE sha = ?", (bytes.fromhex(sha_of(BIG.encode())),))
        db.execute("UPDATE pack SET data = x'00112233' WHERE id = (SELECT max(id) FROM pack)")
    found = [r.text for r in read_content(ContentStore(store.sidecars.folder), "s1")]
    assert [t.lost if isinstance(t, BlobRef) else t for t in found] == ["missing", "damaged", "short"]
    assert isinstance(found[0], BlobRef)
    assert found[0].blob == sha_of(BIG.encode())


def test_a_torn_sidecar_is_mended(store: ContentStore) -> None:
    """A line cut by a crash is skipped, and the next append begins on a new line."""
    append_content(store, [text("m1", "one")], NOW)
    with open(store.sidecars.path("s1"), "ab") as sidecar:
        sidecar.write(b'{"v":1,"sessionId":"s1","rail')
    again = ContentStore(store.sidecars.folder)
    append_content(again, [text("m2", "two")], NOW)
    assert [r.text for r in read_content(again, "s1")] == ["one", "two"]


def test_a_sidecar_is_as_old_as_its_newest_record(store: ContentStore) -> None:
    """Taking in old logs does not renew them; a time to come counts as now."""
    append_content(store, [text("m1", ts=at(50)), text("m2", ts=at(10))], NOW)
    assert store.sidecars.mtime_ms("s1") == START_MS + 50_000
    append_content(store, [text("m3", ts=at(20))], NOW)
    assert store.sidecars.mtime_ms("s1") == START_MS + 50_000
    append_content(store, [text("m4", ts="2099-01-01T00:00:00.000Z")], NOW)
    assert store.sidecars.mtime_ms("s1") == NOW


def test_a_sidecar_changed_by_hand_is_gone_on_with(store: ContentStore) -> None:
    """If a sidecar was deleted or cut by hand, the next append goes to the current file."""
    append_content(store, [text("m1", "one")], NOW)
    os.unlink(store.sidecars.path("s1"))
    append_content(store, [text("m2", "two")], NOW)
    assert [r.text for r in read_content(store, "s1")] == ["two"]


def test_dropping_keeps_what_others_need(store: ContentStore) -> None:
    """Exactly the blobs that no other session refers to go."""
    shared, alone = BIG, BIG + "only here"
    append_content(store, [text("m1", shared), text("m2", alone)], NOW)
    append_content(store, [text("m1", shared, session_id="s2")], NOW)
    assert store.drop(["s1"]) > 0
    assert blob_count(store) == 1
    assert read_content(store, "s1") == []
    assert [r.text for r in read_content(store, "s2")] == [shared]


def test_a_released_blob_leaves_nothing_behind(tmp_path: Path) -> None:
    """A pack that loses a blob is rewritten, freed pages are wiped, and the file shrinks."""
    blobs = BlobStore(tmp_path / "c" / "blobs.db")
    rng = random.Random(0)
    noise = [rng.randbytes(40_000) for _ in range(8)]
    blobs.add({sha_of(n): n for n in noise}, {f"s{i}": {sha_of(n)} for i, n in enumerate(noise)})
    size = os.path.getsize(tmp_path / "c" / "blobs.db") + os.path.getsize(tmp_path / "c" / "blobs.db-wal")
    assert blobs.release([f"s{i}" for i in range(7)]) > 200_000
    on_disk = b"".join(p.read_bytes() for p in (tmp_path / "c").iterdir())
    assert all(n[:64] not in on_disk for n in noise[:7])
    ref = sha_of(noise[7])
    assert Blobs(tmp_path / "c" / "blobs.db").get({ref: None})[ref].data == noise[7]
    assert len(on_disk) < size / 2


def test_what_takes_the_place_of_what_is_gone_is_read_as_it_is(store: ContentStore) -> None:
    """A pack may get the number and the very size of one that is gone: a reader that saw the other is not misled."""
    recall = Recall(store.sidecars.folder)
    for n in range(10, 20):
        append_content(store, [text("m", f"answer word{n}x {BIG}")], NOW)
        assert recalled(recall, store, "s1") == [f"answer word{n}x {BIG}"]
        store.drop(["s1"])


def test_nothing_is_created_before_the_first_write(store: ContentStore) -> None:
    """The content folder appears with the first record."""
    assert append_content(store, [], NOW) == []
    assert read_content(store, "s1") == []
    assert store.orphaned() == []
    assert not store.sidecars.folder.exists()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 2)), max_size=12))
@settings(max_examples=examples(20), deadline=None)
def test_blobs_live_exactly_as_long_as_their_references(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[str, str, int]]
) -> None:
    """Any order of writing and dropping leaves the blobs of the sessions that are left, and no others."""
    store = ContentStore(tmp_path_factory.mktemp("c") / "content")
    model: dict[str, set[str]] = {}
    for session_id, letter, deed in deeds:
        if deed == 2:
            store.drop([session_id])
            model.pop(session_id, None)
        else:
            append_content(store, [text(f"m{letter}{deed}", letter * 3000, session_id=session_id)], NOW)
            model.setdefault(session_id, set()).add(letter)
    needed: set[str] = set().union(*model.values()) if model else set()
    assert not needed or blob_count(store) == len(needed)
    for session_id in "abc":
        found: list[Content] = read_content(store, session_id)
        assert {str(r.text)[0] for r in found} == model.get(session_id, set())
    store.close()


def test_many_sessions_are_written_all_or_none(store: ContentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """More sidecars than stay open are synced in parallel: if one fails, all are unchanged."""
    said = [text("m1", "one", session_id=f"s{n}", ts=at(n)) for n in range(100)]
    append_content(store, said, NOW)
    before = {sidecar.path: (sidecar.size, sidecar.mtime_ms) for sidecar in store.sidecars.scan()}
    doomed = store.sidecars.path("s77").stat().st_ino
    sync = os.fdatasync

    def failing(fd: int) -> None:
        if os.fstat(fd).st_ino == doomed:
            raise OSError(errno.EIO, "no")
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(SyncFailed):
        append_content(store, [text("m2", "two", session_id=f"s{n}") for n in range(100)], NOW)
    assert {sidecar.path: (sidecar.size, sidecar.mtime_ms) for sidecar in store.sidecars.scan()} == before
    monkeypatch.setattr(os, "fdatasync", sync)
    append_content(store, [text("m2", "two", session_id=f"s{n}") for n in range(100)], NOW)
    assert [r.text for r in read_content(store, "s99")] == ["one", "two"]
    assert store.sidecars.mtime_ms("s99") == START_MS + 99_000


def test_what_comes_bit_by_bit_ends_in_few_packs(store: ContentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blobs of a live log are merged into packs as they arrive; each reads back unchanged and can be deleted."""
    monkeypatch.setattr(blobs, "PACK_BYTES", 8 << 10)
    said = [f"{n} " * 300 for n in range(60)]
    recall = Recall(store.sidecars.folder)
    for n, words in enumerate(said):
        append_content(store, [text(f"m{n}", words, session_id=f"s{n % 3}")], NOW)
        if n % 7 == 0:
            assert recalled(recall, store, "s0")[-1] == said[n - n % 3]
    with sqlite3.connect(store.sidecars.folder / "blobs.db") as db:
        assert db.execute("SELECT count(*) FROM pack").fetchone()[0] < 20
    for n in range(3):
        assert recalled(recall, store, f"s{n}") == [r.text for r in read_content(store, f"s{n}")] == said[n::3]
    store.drop(["s0", "s2"])
    assert [r.text for r in read_content(store, "s1")] == recalled(recall, store, "s1") == said[1::3]
    assert blob_count(store) == len(said[1::3])
    recall.close()


def recalled(recall: Recall, store: ContentStore, session_id: str) -> list[Any]:
    with recall.opened(session_id) as reading:
        found = [reading.record(placed.position, placed.length) for placed in store.stored(session_id)]
    return [record.text for record in found if record is not None]


def test_packs_made_by_a_reader_are_stored_as_they_are(store: ContentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blobs come back whether their pack is new as a whole, new in part, or dropped with its records."""
    monkeypatch.setattr(blobs, "PACK_BYTES", 4000)
    packer = blobs.Packer()
    words = [f"{n} " * 400 for n in range(9)]

    def encoded_records(*numbers: int) -> tuple[list[EncodedRecord], list[Pack]]:
        items = encode_records([text(f"m{n}", words[n]) for n in numbers], 100)
        return items, packer.pack(item.blobs for item in items)

    first, first_packs = encoded_records(0, 1, 2, 3)
    assert len(first_packs) == 1
    assert not any(data for item in first for data in item.blobs.values())
    store.append(first, NOW, first_packs)
    again, no_packs = encoded_records(0, 1)  # the process packed them before: they come as they are
    assert no_packs == []
    assert all(data for item in again for data in item.blobs.values())
    packer = blobs.Packer()  # another process
    second, second_packs = encoded_records(2, 3, 4, 5, 6, 7)
    store.append([item for item in second if item.label.message_id != "m7"], NOW, second_packs)
    found = {record.message_id: record.text for record in read_content(store, "s1")}
    assert found == {f"m{n}": words[n] for n in range(7)}
    assert blob_count(store) == 7
