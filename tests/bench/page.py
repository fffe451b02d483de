"""The page of benchmarks: what was measured against what was to be reached, in tables. Pure."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.bench.asking import Asked
from tests.bench.corpus import Truth
from tests.bench.first_read import FirstRead
from tests.bench.peers import Measured
from tests.bench.reports import Answered, by_report
from tests.bench.resting import Idle

Row = tuple[str, str, str, str]  # what, what is to be reached, what was measured, whether it was
_GOALS = ("what", "to reach", "measured", "")


@dataclass
class Findings:
    """All that was measured; sizes are in megabytes, times in seconds."""

    runs: int
    compared: int  # the tree that peers read
    reads: dict[int, list[FirstRead]] = field(default_factory=dict)
    truths: dict[int, Truth] = field(default_factory=dict)
    opencode: tuple[Truth, str] = field(default_factory=lambda: (Truth(), ""))
    asked: dict[int, Asked] = field(default_factory=dict)
    recall: tuple[int, int] = (0, 0)
    start_up: float = 0.0
    lines: list[float] = field(default_factory=list)
    why: tuple[int, float] = (0, 0.0)
    reports: dict[int, list[Answered]] = field(default_factory=dict)  # by the turns of the history
    flat: list[tuple[str, float]] = field(default_factory=list)
    catch_up: tuple[int, list[float]] = (0, [])
    idle: tuple[int, Idle] = (0, Idle(0, 0.0))
    search: list[tuple[int, list[Row]]] = field(default_factory=list)
    peers: list[Measured] = field(default_factory=list)
    paces: list[float] = field(default_factory=list)  # of the machine at the beginning, between and at the end
    load: float = 0.0  # of the machine before anything was measured

    def read(self, size: int, what: str) -> float:
        return float(statistics.median([getattr(found, what) for found in self.reads[size]]))

    def rate(self, size: int) -> float:
        return self.truths[size].bytes / 1e6 / self.read(size, "seconds")

    def disk(self, size: int) -> float:
        return self.read(size, "disk_bytes") / self.truths[size].bytes


def written(findings: Findings, seconds: float, *, is_quick: bool) -> str:
    sections = [
        _HEAD.format(
            system=platform.system(),
            cores=os.cpu_count(),
            python=platform.python_version(),
            runs=findings.runs,
            minutes=seconds / 60,
            load=findings.load,
            slowest=min(findings.paces),
            fastest=max(findings.paces),
        )
        + (_QUICK if is_quick else ""),
        _table(_GOALS, _goals(findings)),
        "## How the first read grows\n\n" + _table(_GROWTH, _growth(findings)),
        *(
            _REPORTS.format(turns=turns) + _table(_GOALS, _reports(answered)) + _missed(answered)
            for turns, answered in findings.reports.items()
        ),
        _FLAT + _table(("with", "processor time of one more turn"), _flat(findings)),
        *(_SEARCH.format(messages=n) + _table(_GOALS, rows) for n, rows in findings.search),
        _PEERS.format(size=findings.compared) + _table(_PEER_COLUMNS, _peers(findings)),
        _WHY,
    ]
    return "\n".join(sections)


def _goals(found: Findings) -> Iterator[Row]:
    middle = found.compared
    *_, large, largest = found.reads
    wrong = [read.wrong for reads in found.reads.values() for read in reads if read.wrong]
    exact = "exact to the token, cost exact"
    yield goal("totals against the truth", exact, wrong[0] if wrong else "exact", not wrong)
    database, off = found.opencode
    yield goal(f"the same for opencode, {database.turns:,} turns", exact, off or "exact", not off)
    rate = found.rate(middle)
    yield goal(f"first read of {middle} MB, search included", ">= 55 MB/s", f"{rate:.1f} MB/s", rate >= 55)
    peak, twice = (found.read(size, "peak_bytes") / 1e6 for size in (large, largest))
    yield goal(f"memory of all processes, {large:,} MB", "<= 300 MB", f"{peak:.0f} MB at most", peak <= 300)
    yield goal(f"the same, {largest:,} MB", "no higher, give or take 5 %", f"{twice:.0f} MB", twice <= 1.05 * peak)
    slowest = max(read.slowest_status for reads in found.reads.values() for read in reads)
    yield goal("slowest `status` meanwhile", "<= 200 ms", _ms(slowest), slowest <= 0.2)
    disk = found.disk(middle)
    yield goal("disk for a byte of log", "<= 0.45", f"{disk:.2f}", disk <= 0.45)
    for size, asked in found.asked.items():
        what = f"`burnctl summary --json`, whole process, {size} MB"
        yield goal(what, "<= 60 ms", _ms(asked.process), asked.process <= 0.06)
        yield goal("the daemon's part of it, over the socket", "<= 5 ms", _ms(asked.daemon), asked.daemon <= 0.005)
        yield goal("a table for a person", "<= 150 ms", _ms(asked.terminal), asked.terminal <= 0.15)
    yield goal("`burnctl` over a bare interpreter", "<= 25 ms", _ms(found.start_up), found.start_up <= 0.025)
    p50, p99 = _at(found.lines, 50), _at(found.lines, 99)
    yield goal("line written to line in a report, p50", "<= 50 ms", _ms(p50), p50 <= 0.05)
    yield goal("the same, p99", "<= 150 ms", _ms(p99), p99 <= 0.15)
    files, times = found.catch_up
    caught = statistics.median(times)
    yield goal(f"catch-up with nothing new, {files:,} files", "<= 50 ms", _ms(caught), caught <= 0.05)
    watched, idle = found.idle
    yield goal(f"idle with {watched:,} files: memory", "<= 90 MB", f"{idle.bytes / 1e6:.0f} MB", idle.bytes <= 90e6)
    yield goal("idle: share of a core", "<= 0.2 %", f"{idle.share * 100:.2f} %", idle.share <= 0.002)
    turns, took = found.why
    yield goal(f"`why` of one session of {turns:,} turns, over the socket", "<= 300 ms", _ms(took), took <= 0.3)
    hits, needles = found.recall
    yield goal("words that stand in one message only, found", "all", f"{hits:,} of {needles:,}", hits == needles)


def goal(what: str, to_reach: str, measured: str, reached: bool) -> Row:
    return (what, to_reach, measured, "reached" if reached else "**not reached**")


_GROWTH = ("logs", "files", "turns", "MB/s", "processor ms/MB", "peak memory", "disk per byte", "slowest status")


def _growth(found: Findings) -> Iterator[Sequence[str]]:
    for size, truth in found.truths.items():
        processor = found.read(size, "processor") / truth.bytes * 1e9
        slowest = max(read.slowest_status for read in found.reads[size])
        yield (
            f"{size:,} MB",
            f"{truth.files:,}",
            f"{truth.turns:,}",
            f"{found.rate(size):.1f}",
            f"{processor:.0f}",
            f"{found.read(size, 'peak_bytes') / 1e6:.0f} MB",
            f"{found.disk(size):.2f}",
            _ms(slowest),
        )


def _reports(answered: list[Answered]) -> Iterator[Row]:
    for group in by_report(answered):
        worst = group[-1]
        bound, took = f"<= {worst.within:.0f} ms", f"{worst.took:.1f} ms at most"
        yield goal(f"{worst.report}, slowest of {len(group)}", bound, took, not worst.is_late)


def _missed(answered: list[Answered]) -> str:
    """Lists every question that took longer than its bound."""
    late = sorted((one for one in answered if one.is_late), key=lambda one: -one.took)
    if not late:
        return ""
    lines = "".join(f"- {one.report} `{one.params}`: {one.took:.1f} ms\n" for one in late)
    return f"\n{len(late)} of {len(answered)} questions missed the bound:\n\n{lines}"


def _flat(found: Findings) -> Iterator[Sequence[str]]:
    for (small, before), (large, after) in zip(found.flat[::2], found.flat[1::2], strict=True):
        yield (small, _ms(before))
        yield (large, f"{_ms(after)}, {after / before:.2f} times that")


_PEER_COLUMNS = (
    "program",
    "first report",
    "against burnd",
    "each later one",
    "against burnd",
    "total",
    "disk per byte",
)


def _peers(found: Findings) -> Iterator[Sequence[str]]:
    size = found.compared
    truth, asked = found.truths[size], found.asked[size]
    first = found.read(size, "seconds")
    yield ("burnd", _s(first), "1", _s(asked.process), "1", "exact", f"{found.disk(size):.2f}")
    for peer in found.peers:
        if peer.why_not:
            yield (peer.name, f"not measured: {peer.why_not}", "", "", "", "", "")
            continue
        off = abs(peer.dollars / float(truth.cost) - 1) * 100
        yield (
            peer.name,
            _s(peer.first),
            f"{peer.first / first:.2f}",
            _s(peer.report),
            f"{peer.report / asked.process:.1f}",
            "exact" if off < 0.001 else f"{off:.2f} % off",
            f"{peer.disk_bytes / truth.bytes:.2f}",
        )


def _at(times: Sequence[float], percent: int) -> float:
    return times[min(len(times) - 1, len(times) * percent // 100)] if times else 0.0


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _table(columns: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


_HEAD = """# Benchmarks

Made by `make bench` on {system}, {cores} cores, Python {python}, in {minutes:.0f} minutes, with a load of
{load:.1f} from other work when it began; medians of {runs} runs (of one for the two largest trees).
`python -m tests.bench --quick` tries it with small sizes. The logs are made by
`tests/bench/corpus.py`, the same bytes every time and with their exact truth: messages on several lines whose usage
grows, forks, subagents, answers made up by the client, results that stand twice, last lines cut short. Everything runs
as a person would run it, in processes of their own with a home of their own. Machines differ: what counts are the
ratios within one run. The goals were set on a machine where Python's own `json` read such logs at 190 MB/s; here, asked
three times during the run, it read them at {slowest:.0f} to {fastest:.0f} MB/s.

"A first read" is over when everything is in the ledger, the content, the index and the search index, and is found.
"""

_QUICK = """
**These are the small sizes of `--quick`**: a first read of so little is mostly starting up.
"""

_REPORTS = """## Reports over a history of {turns:,} turns

How long a question keeps a core busy in the daemon: the median of five, of the slowest question. Every question has the
same bound (`tests/bench/reports.py`; the questions are in `tests/bench/queries.py` and `tests/bench/causes.py`).

"""

_FLAT = """## One more turn

What one more turn costs, from its line to its rows, does not depend on how long its session is, how many files there
are or how much was recorded before. Processor time of all threads, medians of 60; the two cases of a pair take turns.

"""

_SEARCH = """## Search over {messages:,} messages

Beside SQLite's FTS5 on the same words.

"""

_PEERS = """## Beside other programs

The same {size} MB in the same run, offline. Those that keep nothing read all logs again for every report; only
agentsview keeps what was said, as burnd does. What they say of the total is compared with the truth.

"""

_WHY = """## Where the time goes, and why some goals are not reached

- **First read.** Most of the time is Python's own: each line passes through some hundred small steps (which rail, which
  prompt, which call, what changed), and each block becomes a record, a line, a row and a document. Reading is done in
  a second process and the search index is written by a thread that needs no Python, so both cores are at work; what is
  left is work, not waiting. That thread alone takes some 18 ms for each MB of log, as long as tantivy needs to sort so
  many words in; making them ready for it takes 8 ms where the logs are read. Where the two cores are two threads of
  one, as they often are in a rented machine, each works a third to a half slower while the other does.
- **Search.** A query of everyday words takes some 3.5 ms of processor time, nearly half of it for the ninety messages
  that stand around its ten hits, which are read from content and cut to a few lines each; the slowest of a hundred, of
  many words or of very common ones, take half as much again: tantivy adds up every message that has one of the words,
  some 8 ns for each, however few are wanted. With `limit` 1 it is little more than half. A third of it is tantivy's and
  SQLite's, a seventh the socket's, the rest Python, in many small steps of which none takes more than a thirtieth.
- **Why.** The session that is explained has 18,600 blocks in its 5,000 turns, and its context shrinks 216 times
  without a word, which is more than most have. What came up on it is kept in pieces of 256 messages, of which only the
  last is followed again. Nearly half of the time goes into adding up what each of 12,000 causes paid, a sixth into
  reading the pieces and following the last, the rest into totals, quotes and the thousand causes that are shown.
- **Reports.** Those that add up by a tag that every session has read what is kept of each of 20,000 sessions: some
  250 ms where nothing else runs on the machine, and half as long again where the other thread of its core is busy. Of
  sessions that are sorted by cost only those that are shown are added up.
- **Idle.** What is left is a look at every file each 55 s, whatever events tell (some 50 ms for 10,000), a wake-up
  every five seconds, and two a second by tantivy, which looks whether somebody else changed its index and cannot be
  told not to. From one run to the next it is between 0.17 and 0.24 % of a core.
- **Memory.** What is in use stays the same from the first hundred MB on, some 55 MB of the heap beside Python's own
  objects. What grows, by some 20 MB from 2 to 4 GB, is what lies free between it and cannot be given back, and files
  that tantivy maps while it merges.
- **Disk.** The ledger takes 0.13 bytes for each byte of log and the sidecars 0.14: lines of JSON that any tool reads,
  each of which names its session, rail, message and time. Compressed they would take 0.05 together, and that is all
  that is missing; but then they would be lines for nobody but burnd. (A file system that compresses, as btrfs and ZFS
  can, gives both.) Large texts, 0.43 bytes of every byte, are compressed to 0.16 in packs, with 0.01 for where each is;
  smaller ones are not, since a blob of its own would take more room than the text. The search index takes 0.11:
  without how often a word stands in a message it would be a quarter smaller, but a message that is about something
  would rank no higher than one that mentions it once. The index takes 0.12, most of it for where every block and every
  line stands, so that a new line costs the same however long its session is.
"""
