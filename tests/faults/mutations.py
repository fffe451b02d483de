"""Mutates valid bytes: cuts, flips, doubles, mixes, and inserts values of other types."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from burnd.errors import ConfigError
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.journal import Journal
from burnd.paths import Home
from burnd.recording.pipeline import open_pipeline
from burnd.records import Prune
from burnd.records.codec import encode
from burnd.settings import config
from tests.ledger.every_fault import batches

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**40),
    *("", "x", "\x00", "\ud800", "\u2028", "\u202e\x1b[31m", "x" * 5000, "../../etc/passwd", "2026-13-45T99:99:99Z"),
    *("9999-12-31T23:59:59.999Z", "0000-00-00", "'; DROP TABLE turns; --", "NaN", "%s%n{0}"),
    *([], {}, [[]], [None], {"": {}}, [1, "a", {}], {"a": [{"b": None}]}, [[[[[[[[[[]]]]]]]]]]),
]


class Mutations:
    """Random mutations of samples; a seed gives the same ones."""

    def __init__(self, samples: Sequence[bytes], seed: int) -> None:
        self.samples = samples
        self.chance = random.Random(seed)

    def lines(self, count: int) -> Iterator[bytes]:
        """So many lines, most of them not what they were."""
        for _ in range(count):
            line = self.chance.choice(self.samples)
            for _ in range(self.chance.choice((0, 1, 1, 2, 4))):
                line = self.chance.choice((self.flipped, self.cut, self.mixed, self.odd, self.odd))(line)
            yield line.replace(b"\n", b" ")

    def flipped(self, data: bytes) -> bytes:
        bent = bytearray(data)
        for _ in range(self.chance.randrange(1, 8)):
            if bent:
                bent[self.chance.randrange(len(bent))] = self.chance.randrange(256)
        return bytes(bent)

    def cut(self, data: bytes) -> bytes:
        begin, end = sorted((self._place(data), self._place(data)))
        return self.chance.choice((data[:end], data[begin:], data[:begin] + data[end:], data[:end] + data[begin:]))

    def mixed(self, data: bytes) -> bytes:
        other = self.chance.choice(self.samples)
        return data[: self._place(data)] + other[self._place(other) :]

    def odd(self, data: bytes) -> bytes:
        """Something somewhere inside is replaced, removed or named otherwise."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return self.flipped(data)
        self.odd_value(value)
        return json.dumps(value).encode()

    def odd_value(self, value: Any) -> None:
        while isinstance(value, dict | list) and value:
            key = self.chance.choice(list(value)) if isinstance(value, dict) else self.chance.randrange(len(value))
            inner = value[key]
            if not isinstance(inner, dict | list) or not inner or self.chance.random() < 0.3:
                self._change(value, key)
                return
            value = inner

    def _change(self, value: Any, key: Any) -> None:
        how = self.chance.random()
        if how < 0.7:
            value[key] = copy.deepcopy(self.chance.choice(ODD))
        elif how < 0.85:
            del value[key]
        elif isinstance(value, dict):
            value[str(self.chance.choice(ODD))] = value.pop(key)
        else:
            value += copy.deepcopy(value)

    def _place(self, data: bytes) -> int:
        return self.chance.randrange(len(data) + 1)


async def read_bent_ledger(folder: Path, seed: int) -> int:
    """Number of lines, all of which must be reported."""
    folder.mkdir(mode=0o700)
    home = Home(folder)
    lines = [line + b"\n" for line in Mutations(_ledger_lines(), seed).lines(500)]
    home.ledger.write_bytes(b"".join(lines))
    home.ledger.chmod(0o600)
    journal = Journal(home.ledger, 0)
    assert sum(1 for _ in journal.read()) == len(lines)
    journal.close()
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=1024, reserve=0)
    assert (await pipeline.index.rows("SELECT count(*) FROM turns"))[0][0] >= 0
    await pipeline.close()
    return len(lines)


def _ledger_lines() -> list[bytes]:
    """Turns, revisions, copies, sessions, stamps and a prune."""
    entries = [entry for batch in batches() for entry in batch.entries]
    entries += [Prune(session_id="s1", up_to="2026-11-16T10:00:00.000Z", messages=3)]
    return [encode(entry).rstrip(b"\n") for entry in entries]


def bent_settings(folder: Path, mutations: Mutations, times: int) -> None:
    """Each of them must be understood or refused."""
    home = Home(folder)
    home.root.mkdir(mode=0o700)
    for _ in range(times):
        text = config.template().encode()
        for _ in range(mutations.chance.randrange(1, 4)):
            bent = (mutations.flipped, mutations.cut, mutations.mixed, _assigned(mutations))
            text = mutations.chance.choice(bent)(text)
        home.config.write_bytes(text)
        assert str(home.config) in _refusal(home)


def _refusal(home: Home) -> str:
    try:
        config.load(home, {})
    except ConfigError as error:
        return str(error)
    return str(home.config)  # understood


def _assigned(mutations: Mutations) -> Any:
    """A value of a setting is replaced by another, which TOML can say."""

    def change(text: bytes) -> bytes:
        lines = text.split(b"\n")
        at = mutations.chance.randrange(len(lines))
        odd = json.dumps(mutations.chance.choice(ODD[1:])).encode()
        lines[at] = lines[at].partition(b"=")[0] + b"= " + odd
        return b"\n".join(lines)

    return change
