"""Bytes that were something once: cut, flipped, doubled, mixed, and values that nobody expected in their place."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**40),
    *("", "x", "\x00", "\ud800", "\u2028", "\u202e\x1b[31m", "x" * 5000, "../../etc/passwd", "2026-13-45T99:99:99Z"),
    *("9999-12-31T23:59:59.999Z", "0000-00-00", "'; DROP TABLE turns; --", "NaN", "%s%n{0}"),
    *([], {}, [[]], [None], {"": {}}, [1, "a", {}], {"a": [{"b": None}]}, [[[[[[[[[[]]]]]]]]]]),
]


class Mutations:
    """What becomes of samples by chance; the same seed makes the same."""

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
