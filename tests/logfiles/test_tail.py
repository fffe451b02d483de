"""Promises about reading files that grow, shrink and are rewritten while they are read."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.logfiles import tail
from burnd.logfiles.scanner import fingerprint
from burnd.logfiles.tail import Chunk, Cursor, LastLine
from tests.logfiles import reading


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.touch()
    return path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as handle:
        handle.write(data)


def read(path: Path, cursor: Cursor | None = None, *, max_bytes: int = tail.MAX_BYTES) -> Chunk:
    """Read to the end; the result looks as if it had come from one call."""
    chunk = reading.read(str(path), cursor, max_bytes=max_bytes)
    lines, rewound = list(chunk.lines), chunk.rewound
    while chunk.more:
        chunk = reading.read(str(path), chunk.cursor, max_bytes=max_bytes)
        lines += chunk.lines
    return msgspec.structs.replace(chunk, lines=lines, rewound=rewound)


def texts(chunk: Chunk) -> list[bytes]:
    return [line for _, line in chunk.lines]


def take_tail(path: Path, cursor: Cursor) -> LastLine | None:
    fd = os.open(path, os.O_RDONLY)
    try:
        return tail.last_line(fd, cursor)
    finally:
        os.close(fd)


def numbered(first: int, last: int, width: int = 40) -> bytes:
    return b"".join(b"%0*d\n" % (width, number) for number in range(first, last))


def texts_of(data: bytes) -> list[bytes]:
    return data.split(b"\n")[:-1]


def whole_lines(data: bytes) -> list[tuple[int, bytes]]:
    """Expected lines of one clean read of `data`."""
    offset, lines = 0, []
    for line in data.split(b"\n")[:-1]:
        lines.append((offset, line))
        offset += len(line) + 1
    return lines


TRANSCRIPT = "".join(
    json.dumps({"n": n, "text": text}, ensure_ascii=False) + "\n"
    for n, text in enumerate(["plain", "ünïcode", "\U0001f600", "a\u2028b\u0085c", "", "x" * 300])
).encode()


def test_split_at_every_byte(file: Path) -> None:
    """F01: wherever the writer stops, nothing after the last newline is delivered, and nothing is lost."""
    for cut in range(len(TRANSCRIPT) + 1):
        file.write_bytes(TRANSCRIPT[:cut])
        first = read(file)
        assert first.lines == whole_lines(TRANSCRIPT[:cut])
        assert first.cursor.offset == TRANSCRIPT[:cut].rfind(b"\n") + 1
        append(file, TRANSCRIPT[cut:])
        second = read(file, first.cursor)
        assert second.rewound is None
        assert first.lines + second.lines == whole_lines(TRANSCRIPT)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.lists(st.binary(max_size=40).map(lambda line: line + b"\n"), max_size=20).map(b"".join)
    | st.binary(max_size=400),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    max_bytes=st.integers(1, 90),
    max_line=st.integers(1, 60),
)
def test_any_chunks_give_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cuts: list[int], max_bytes: int, max_line: int
) -> None:
    """F01, F09: any way of growing, any size of read and any line limit give what one clean read gives."""
    path = tmp_path_factory.mktemp("chunks") / "f"
    path.touch()
    cursor: Cursor | None = None
    lines: list[tuple[int, bytes]] = []
    skipped: list[tuple[int, int]] = []
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in itertools.pairwise(edges):
        append(path, data[start:end])
        more = True
        while more:
            chunk = reading.read(str(path), cursor, max_bytes=max_bytes, max_line=max_line)
            assert chunk.rewound is None
            cursor = msgspec.msgpack.decode(msgspec.msgpack.encode(chunk.cursor), type=Cursor)
            lines += chunk.lines
            skipped += chunk.skipped
            more = chunk.more
    expected = whole_lines(data)
    assert lines == [(at, line) for at, line in expected if len(line) <= max_line and line.strip()]
    assert skipped == [(at, len(line) + 1) for at, line in expected if len(line) > max_line]
    if cursor is not None:
        assert cursor.lines == len(expected)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_cut_in_two(file: Path, cut: int) -> None:
    """F02: a four-byte character that arrives in two writes is delivered whole."""
    smile = "\U0001f600".encode()
    append(file, b'{"t":"' + smile[:cut])
    first = read(file)
    assert first.lines == []
    append(file, smile[cut:] + b'"}\n')
    assert texts(read(file, first.cursor)) == [b'{"t":"' + smile + b'"}']


def test_bytes_are_delivered_as_they_are(file: Path) -> None:
    """F11: CR, U+2028, U+0085, NUL, a BOM and broken UTF-8 neither split a line nor change."""
    odd = [b"\xef\xbb\xbf{}", b"a\r", "b\u2028c\u0085d".encode(), b"\0\0", b"\xff\xfe", b"", b"\x0b\x0c\x1c"]
    append(file, b"\n".join(odd) + b"\n")
    assert texts(read(file)) == [line for line in odd if line.strip()]


@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n"])
def test_blank_lines_are_skipped_without_a_list_of_them(file: Path, blank: bytes) -> None:
    """F18: millions of them take no more memory than their bytes, and count as lines."""
    append(file, b"one\n" + blank * 100_000 + b"two\n" + blank + b"half")
    chunk = read(file)
    assert [line for _, line in chunk.lines] == [b"one", b"two"]
    assert (chunk.cursor.lines, chunk.cursor.passed) == (100_003, 4)
    assert chunk.lines[1][0] == 4 + len(blank) * 100_000


def test_very_many_lines_come_in_portions(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F18: the shortest lines take a hundred times their bytes; each portion ends where the next one begins."""
    monkeypatch.setattr(tail, "MAX_LINES", 3)
    append(file, numbered(0, 10) + b"half")
    lines: list[bytes] = []
    chunk = reading.read(str(file), None)
    while True:
        assert len(chunk.lines) <= 3
        lines += texts(chunk)
        if not chunk.more:
            break
        chunk = reading.read(str(file), chunk.cursor)
        assert chunk.rewound is None
    assert lines == texts_of(numbered(0, 10))
    assert chunk.cursor.passed == 4


def test_truncated_below_the_offset(file: Path) -> None:
    """F03: a file that shrank is read from the start again, and the chunk has the reason."""
    append(file, numbered(0, 10))
    first = read(file)
    os.truncate(file, len(numbered(0, 3)))
    append(file, numbered(20, 22))
    second = read(file, first.cursor)
    assert second.rewound == "truncated"
    assert texts(second) == texts_of(numbered(0, 3) + numbered(20, 22))


def test_truncated_and_regrown_past_the_offset(file: Path) -> None:
    """F04: a rewrite between two reads that ends longer is detected by the bytes before the offset."""
    append(file, numbered(0, 200))
    first = read(file)
    os.truncate(file, len(numbered(0, 190)))
    append(file, numbered(300, 350))
    second = read(file, first.cursor)
    assert second.rewound == "changed"
    assert texts(second) == texts_of(numbered(0, 190) + numbered(300, 350))


def test_rewritten_from_the_start_in_place(file: Path) -> None:
    """F04: other content in the same inode is read from the start, whatever its size."""
    append(file, numbered(0, 50))
    first = read(file)
    file.write_bytes(numbered(100, 180))
    second = read(file, first.cursor)
    assert second.rewound == "rewritten"
    assert texts(second) == texts_of(numbered(100, 180))


def test_a_line_cut_out_of_the_past(file: Path) -> None:
    """F04: the client may cut a written line out in place and grow again; what follows is not garbled."""
    append(file, numbered(0, 60))
    first = read(file)
    with file.open("r+b") as handle:
        handle.seek(len(numbered(0, 58)))
        handle.write(numbered(59, 60))
        handle.truncate()
    append(file, numbered(60, 64))
    second = read(file, first.cursor)
    assert second.rewound == "changed"
    assert texts(second) == texts_of(numbered(0, 58) + numbered(59, 64))


def test_an_edit_inside_the_anchor_is_noticed(file: Path) -> None:
    """F05: a same-size edit just before the offset causes a second read."""
    append(file, numbered(0, 100))
    first = read(file)
    with file.open("r+b") as handle:
        handle.seek(-50, os.SEEK_END)
        handle.write(b"#")
    assert read(file, first.cursor).rewound == "changed"


def test_an_edit_far_before_the_offset_changes_nothing(file: Path) -> None:
    """F05: a same-size edit between head and anchor is out of scope: no crash, no change."""
    append(file, numbered(0, 100))
    first = read(file)
    with file.open("r+b") as handle:
        handle.seek(2000)  # after the head, before the anchor
        handle.write(b"#")
    append(file, b"next\n")
    second = read(file, first.cursor)
    assert (second.rewound, texts(second)) == (None, [b"next"])


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder in which inodes are used again, as they are not in memory."""
    with tempfile.TemporaryDirectory(prefix="burnd-", dir="/var/tmp") as folder:
        yield Path(folder)


def test_a_reused_inode_is_another_file(on_disk: Path) -> None:
    """F07: a new file that got the inode of a deleted one is read from its start."""
    old = on_disk / "a.jsonl"
    for _ in range(50):
        append(old, numbered(0, 30))
        cursor = read(old).cursor
        old.unlink()
        new = on_disk / "b.jsonl"
        append(new, numbered(100, 200))
        if new.stat().st_ino == cursor.ino:
            break
        new.unlink()
    else:
        pytest.skip("this file system gave no inode a second time")
    chunk = read(new, cursor)
    assert chunk.rewound == "rewritten"
    assert texts(chunk) == texts_of(numbered(100, 200))


def test_another_inode_is_read_from_the_start(file: Path, tmp_path: Path) -> None:
    """F06: a file put in the old one's place is read from 0 even if it begins with the same bytes."""
    append(file, numbered(0, 10))
    first = read(file)
    other = tmp_path / "new"
    other.write_bytes(numbered(0, 12))
    other.replace(file)
    second = read(file, first.cursor)
    assert second.rewound == "replaced"
    assert texts(second) == texts_of(numbered(0, 12))


def test_a_renumbered_device_is_the_same_file(file: Path) -> None:
    """F07: device numbers change at every mount of some file systems; that alone rewinds nothing."""
    append(file, numbered(0, 10))
    cursor = msgspec.structs.replace(read(file).cursor, dev=0)
    append(file, b"next\n")
    chunk = read(file, cursor)
    assert (chunk.rewound, texts(chunk)) == (None, [b"next"])


def test_times_decide_nothing(file: Path) -> None:
    """F20: new lines are found whatever the modification time."""
    append(file, b"one\n")
    os.utime(file, (4102444800, 4102444800))
    first = read(file)
    append(file, b"two\n")
    os.utime(file, (0, 0))
    assert texts(read(file, first.cursor)) == [b"two"]


def test_an_untouched_file_need_not_be_opened(file: Path) -> None:
    """F20: a cursor recognises a file it has read to the end, and only that one."""
    append(file, b"one\ntwo\n")

    def describes(cursor: Cursor) -> bool:
        found = file.stat()
        return cursor.fingerprint == fingerprint(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)

    half = reading.read(str(file), None, max_bytes=5)
    assert half.more
    assert not describes(half.cursor)
    whole = read(file, half.cursor)
    assert describes(whole.cursor)
    append(file, b"three\n")
    assert not describes(whole.cursor)


def test_reading_starts_again_without_a_cursor(file: Path) -> None:
    append(file, b"one\n")
    assert texts(read(file)) == texts(read(file)) == [b"one"]


def test_an_empty_file_is_nothing(file: Path) -> None:
    chunk = read(file)
    assert (chunk.lines, chunk.more, chunk.cursor.offset) == ([], False, 0)
    append(file, b"one\n")
    assert texts(read(file, chunk.cursor)) == [b"one"]


def test_a_call_reads_at_most_its_limit(file: Path) -> None:
    """F19: one call reads `max_bytes` and returns whether there is more."""
    append(file, numbered(0, 100))
    chunk = reading.read(str(file), None, max_bytes=100)
    assert (len(chunk.lines), chunk.more) == (2, True)
    assert len(texts(read(file, chunk.cursor, max_bytes=100))) == 98


def test_a_growing_line_is_not_read_again_and_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F09: a line that grows over many polls costs its length once while it grows, and once when it is whole."""
    asked = 0
    pread = os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        nonlocal asked
        data = pread(fd, size, offset)
        asked += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    cursor: Cursor | None = None
    for _ in range(50):
        append(file, b"x" * 10_000)
        chunk = read(file, cursor)
        cursor = chunk.cursor
        assert chunk.lines == []
    append(file, b"\n")
    assert texts(read(file, cursor)) == [b"x" * 500_000]
    assert asked < 2 * 500_000 + 100 * 2_000


SKIPS = """
import os, resource, sys
from tests.logfiles import reading
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
path, cursor, lines, skipped, more = sys.argv[1], None, [], [], True
while more:
    chunk = reading.read(path, cursor)
    lines += chunk.lines; skipped += chunk.skipped; cursor = chunk.cursor; more = chunk.more
    assert chunk.rewound is None
status = open("/proc/self/status").read()
print([line for _, line in lines], skipped, int(status.split("VmHWM:")[1].split()[0]) >> 10)
"""


# VmHWM starts at zero with the program; ru_maxrss would count what the tests' own process had when it forked.
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc to tell memory")
def test_a_line_of_200_mb_is_skipped(file: Path) -> None:
    """F09: it is counted with offset and size, its neighbours are read, and memory stays below 150 MB."""
    append(file, b"before\n")
    os.truncate(file, 7 + (200 << 20))
    append(file, b"\nafter\n")
    done = subprocess.run(
        [sys.executable, "-c", SKIPS, str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    shown, megabytes = done.stdout.rsplit(maxsplit=1)
    assert shown == f"[b'before', b'after'] [(7, {(200 << 20) + 1})]"
    assert int(megabytes) < 150


def test_a_size_that_cannot_be_read_does_not_spin(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: bytes that a file system reports but never returns are not requested forever."""
    append(file, b"one\n")
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: b"")
    assert not reading.read(str(file), None).more


def test_short_reads_are_completed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may return fewer bytes than requested; that is not the end of the file."""
    append(file, numbered(0, 10))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 7), offset))
    assert texts(read(file)) == texts_of(numbered(0, 10))


class TestUnfinished:
    """F10: a last line that never gets its newline."""

    def test_is_offered_with_its_position(self, file: Path) -> None:
        append(file, b'{"a":1}\n{"b":2}')
        chunk = read(file)
        found = take_tail(file, chunk.cursor)
        assert found is not None
        assert (found.offset, found.size, found.data) == (8, 7, b'{"b":2}')

    def test_is_not_delivered_again_when_its_newline_comes(self, file: Path) -> None:
        append(file, b'{"b":2}')
        found = take_tail(file, read(file).cursor)
        assert found is not None
        append(file, b"\n")
        done = read(file, found.cursor)
        assert (done.lines, done.rewound) == ([], None)
        append(file, b'{"c":3}\n')
        assert read(file, done.cursor).lines == [(8, b'{"c":3}')]
        assert read(file, done.cursor).cursor.lines == 2

    def test_what_is_written_behind_it_is_a_line_of_its_own(self, file: Path) -> None:
        append(file, b'{"b":2}')
        found = take_tail(file, read(file).cursor)
        assert found is not None
        append(file, b'{"c":3}\n')
        assert read(file, found.cursor).lines == [(7, b'{"c":3}')]

    def test_is_whole_again_if_nobody_took_it(self, file: Path) -> None:
        append(file, b'{"b":')
        cursor = read(file).cursor
        assert take_tail(file, cursor) is not None
        append(file, b"2}\n")
        assert texts(read(file, cursor)) == [b'{"b":2}']

    def test_is_not_offered_while_there_is_more_to_read(self, file: Path) -> None:
        append(file, b"half")
        cursor = read(file).cursor
        append(file, b" more")
        assert take_tail(file, cursor) is None

    def test_is_not_offered_after_a_rewrite(self, file: Path) -> None:
        append(file, b"half")
        cursor = read(file).cursor
        file.write_bytes(b"a\nbc")
        assert take_tail(file, cursor) is None

    def test_there_is_none_after_a_newline(self, file: Path) -> None:
        append(file, b"whole\n")
        assert take_tail(file, read(file).cursor) is None

    def test_one_that_is_too_long_is_only_measured(self, file: Path) -> None:
        append(file, b"x" * 100)
        cursor = read(file).cursor
        fd = os.open(file, os.O_RDONLY)
        try:
            found = tail.last_line(fd, cursor, max_line=99)
        finally:
            os.close(fd)
        assert found is not None
        assert (found.size, found.data) == (100, None)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(st.sampled_from(["document", "half", "newline", "space", "read", "take", "restart"]), max_size=40)
)
def test_every_document_comes_once(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    """F10: taking complete tails at any time, restarts included, delivers each document exactly once."""
    path = tmp_path_factory.mktemp("tails") / "f"
    path.touch()
    cursor: Cursor | None = None
    written, came, half = 0, b"", b""

    def drain() -> None:
        nonlocal cursor, came
        chunk = read(path, cursor)
        assert chunk.rewound is None
        cursor = chunk.cursor
        came += b"".join(texts(chunk))

    for step in [*steps, "newline", "read"]:
        if step in ("document", "half", "newline"):
            if half:
                append(path, half)
                half = b""
            elif step != "newline":
                document = b'{"n":%d}' % written
                written += 1
                keep = len(document) // 2 if step == "half" else 0
                append(path, document[: len(document) - keep])
                half = document[len(document) - keep :]
            if step == "newline" and not half:
                append(path, b"\n")
        elif step == "space" and not half:
            append(path, b" ")
        elif step == "read":
            drain()
        elif step == "restart" and cursor is not None:
            cursor = msgspec.msgpack.decode(msgspec.msgpack.encode(cursor), type=Cursor)
        elif step == "take":
            drain()
            assert cursor is not None
            found = take_tail(path, cursor)
            if found is not None and found.data is not None and not half and found.data.strip():
                came += found.data
                cursor = found.cursor
    assert came.replace(b" ", b"") == b"".join(b'{"n":%d}' % n for n in range(written))
