"""A database of opencode's with its exact truth, and its first read.

It holds what makes naive counting wrong: forks that repeat another session's messages under new ids, reasoning beside
the output, steps that were broken off, and agents in sessions of their own.
"""

from __future__ import annotations

import random
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.bench.corpus import RATES, START_MS, Truth, Words
from tests.bench.running import Home, running
from tests.harness.opencode.data import Writer, reasoning, text, tokens, tool

_BROKEN_OFF = {"name": "MessageAbortedError", "data": {"message": "The operation was aborted."}}
_FORKED, _WITH_AGENT = 5, 3  # one session in so many


def first_read(root: Path, sessions: int) -> tuple[Truth, str]:
    """Lets a daemon read a database of this many sessions and compares its totals with the truth."""
    shutil.rmtree(root, ignore_errors=True)
    home = Home(root)
    truth = _Corpus(root / "no-data" / "opencode" / "opencode.db").grow(sessions)
    with running(home) as daemon:
        wire = daemon.wire()
        while wire.call("status")["daemon"]["state"] != "ready":
            time.sleep(0.05)
        wire.call("flush")
        totals = wire.call("summary")["totals"]
        wire.close()
    thought, expected = totals["usage"]["reasoning"], truth.tokens["reasoning"]
    return truth, truth.differs(totals) or ("" if thought == expected else f"{thought} reasoning, not {expected}")


class _Corpus:
    """The database while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._truth = Truth()
        self._words = Words(7)
        self._steps = 0

    def grow(self, sessions: int) -> Truth:
        with closing(Writer(self._path, born=START_MS)) as writer:
            for n in range(sessions):
                writer.db.execute("BEGIN")
                self._session(writer, f"ses_{n:06d}", random.Random(n))
                if n % _FORKED == 0:
                    writer.fork(f"ses_{n:06d}", f"ses_{n:06d}f", upto=12)
                if n % _WITH_AGENT == 0:
                    self._session(writer, f"ses_{n:06d}a", random.Random(-n), parent_id=f"ses_{n:06d}")
                writer.db.execute("COMMIT")
                writer.done.clear()
        self._truth.files, self._truth.bytes = 1, self._path.stat().st_size
        return self._truth

    def _session(self, writer: Writer, session: str, rng: random.Random, **changes: Any) -> None:
        writer.session(session, **changes)
        model = rng.choice(list(RATES))
        for n in range(rng.randrange(2, 8)):
            asked = writer.user(f"msg_{session}_{n}", session, self._words.text(rng, 200))
            for _ in range(rng.randrange(1, 6)):
                self._step(writer, session, asked, model, rng)

    def _step(self, writer: Writer, session: str, asked: str, model: str, rng: random.Random) -> None:
        self._steps += 1
        name = f"msg_{session}_s{self._steps:08d}"
        made_by: dict[str, Any] = {"modelID": model, "providerID": "anthropic"}
        if rng.random() < 0.02:
            writer.step(name, session, asked, tokens=tokens(), error=_BROKEN_OFF, finish=None, **made_by)
            return
        given, thought, said, written, read = (rng.randrange(1, most) for most in (50, 400, 900, 5000, 90_000))
        parts = (
            reasoning(self._words.text(rng, 300)),
            tool(f"call_{self._steps}", "bash", {"command": "make test"}, self._words.text(rng, 1500)),
            text(self._words.text(rng, 500)),
        )
        usage = tokens(input=given, output=said, reasoning=thought, write=written, read=read)
        writer.step(name, session, asked, *parts, tokens=usage, **made_by)
        self._truth.bill(model, (given, said + thought, written, 0, read))
        self._truth.tokens.update(output=-thought, reasoning=thought)  # billed like output, and said apart
