"""A model of everything that may happen to a file while it is followed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from burnd.logfiles.tail import Cursor, OpenFiles
from tests.make import examples

WIDTHS = st.lists(st.sampled_from([1, 9, 80, 300, 1200]), min_size=1, max_size=6)


def _lines_of(data: bytes) -> list[bytes]:
    """The whole lines of a file that are handed out: blank ones are not."""
    return [line for line in data.split(b"\n")[:-1] if line.strip()]


class FollowedFile(RuleBasedStateMachine):
    """F01, F03, F04, F06, F07, F08: every whole line that was in the file at a poll is delivered intact. Lines are
    repeated only after a rewind, which is always announced."""

    @initialize(max_bytes=st.sampled_from([16, 200, 4096]), limit=st.sampled_from([0, 1, 8]))
    def start(self, max_bytes: int, limit: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="followed-"))
        self.path = self.folder / "session.jsonl"
        self.max_bytes = max_bytes
        self.limit = limit
        self.files = OpenFiles(limit=limit)
        self.cursor: Cursor | None = None
        self.serial = 0
        self.existed: set[bytes] = set()
        self.delivered: set[bytes] = set()
        self.this_time: set[int] = set()

    def teardown(self) -> None:
        if hasattr(self, "files"):
            self.files.close()
            shutil.rmtree(self.folder)

    def lines(self, widths: list[int]) -> bytes:
        made = b""
        for width in widths:
            self.serial += 1
            made += (b"%d." % self.serial * width)[: width + 8] + b"\n"
        return made

    def content(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def wrote(self) -> None:
        self.existed.update(_lines_of(self.content()))

    @rule(widths=WIDTHS)
    def append(self, widths: list[int]) -> None:
        with self.path.open("ab") as file:
            file.write(self.lines(widths))
        self.wrote()

    @rule(widths=WIDTHS, cut=st.integers(1, 400))
    def append_partial(self, widths: list[int], cut: int) -> None:
        with self.path.open("ab") as file:
            file.write(self.lines(widths)[:-cut])
        self.wrote()

    @precondition(lambda self: self.path.exists())
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        with self.path.open("r+b") as file:
            file.truncate(int(len(self.content()) * part))
        self.wrote()

    @rule(widths=WIDTHS, keep=st.booleans())
    def rewrite_in_place(self, widths: list[int], keep: bool) -> None:
        kept = self.content() if keep else b""
        with self.path.open("wb") as file:
            file.write(kept[: len(kept) // 2] + self.lines(widths))
        self.wrote()

    @rule(widths=WIDTHS, keep=st.booleans())
    def replace(self, widths: list[int], keep: bool) -> None:
        fresh = self.folder / "new"
        fresh.write_bytes((self.content() if keep else b"") + self.lines(widths))
        fresh.replace(self.path)
        self.wrote()

    @precondition(lambda self: self.path.exists())
    @rule()
    def delete(self) -> None:
        self.path.unlink()

    @precondition(lambda self: self.path.exists())
    @rule(widths=WIDTHS)
    def delete_and_recreate(self, widths: list[int]) -> None:
        self.path.unlink()
        self.path.write_bytes(self.lines(widths))
        self.wrote()

    @rule()
    def restart(self) -> None:
        self.files.close()
        self.files = OpenFiles(limit=self.limit)
        self.cursor = msgspec.msgpack.decode(msgspec.msgpack.encode(self.cursor), type=Cursor | None)

    @rule()
    def poll(self) -> None:
        there = set(_lines_of(self.content()))
        more = True
        while more:
            try:
                chunk = self.files.read(str(self.path), self.cursor, max_bytes=self.max_bytes)
            except FileNotFoundError:
                break
            if chunk.rewound is not None:
                self.this_time.clear()
            offsets = {offset for offset, _ in chunk.lines}
            assert len(offsets) == len(chunk.lines)
            assert offsets.isdisjoint(self.this_time), "delivered twice without a rewind"
            self.this_time |= offsets
            self.delivered |= {line for _, line in chunk.lines}
            self.cursor, more = chunk.cursor, chunk.more
        assert there <= self.delivered, "lost"
        assert self.delivered <= self.existed, "garbled"


class HeldFile(FollowedFile):
    """F06, F08: while its descriptor is open, unread lines of a replaced or unlinked file are returned."""

    @initialize(max_bytes=st.sampled_from([16, 4096]), limit=st.just(8))
    def start(self, max_bytes: int, limit: int) -> None:
        super().start(max_bytes, limit)
        self.path.write_bytes(b"")
        self.poll()

    @rule(widths=WIDTHS)
    def append_and_lose(self, widths: list[int]) -> None:
        self.poll()
        if len(self.files) == 0:
            return
        ending = b"\n" + self.lines(widths)
        with self.path.open("ab") as file:
            file.write(ending)
        self.wrote()
        there = set(_lines_of(self.content()))
        self.path.unlink()
        self.path.write_bytes(b"")
        self.poll()
        assert there <= self.delivered, "lost with the old file"


TestFollowedFile = FollowedFile.TestCase
TestFollowedFile.settings = settings(
    max_examples=examples(60), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestHeldFile = HeldFile.TestCase
TestHeldFile.settings = settings(
    max_examples=examples(25), stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
