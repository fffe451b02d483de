"""Formats the page of benchmarks: each figure beside its goal, in tables. Pure."""

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

Row = tuple[str, str, str, str]  # what, goal, figure, whether it is reached
_GOALS = ("what", "to reach", "measured", "")


@dataclass
class Findings:
    """All figures; sizes are in megabytes, times in seconds unless another unit is named."""

    runs: int
    compared: tuple[int, ...]  # the trees that other programs read
    reads: dict[int, list[FirstRead]] = field(default_factory=dict)
    truths: dict[int, Truth] = field(default_factory=dict)
    opencode: tuple[Truth, str] = field(default_factory=lambda: (Truth(), ""))
    asked: dict[int, Asked] = field(default_factory=dict)
    recall: tuple[int, int] = (0, 0)
    start_up: float = 0.0
    lines: list[float] = field(default_factory=list)
    lines_while_reading: list[float] = field(default_factory=list)
    live_turn: tuple[float, float] = (0.0, 0.0)  # milliseconds of it, and of a bare interpreter
    why: tuple[int, float] = (0, 0.0)
    reports: dict[int, list[Answered]] = field(default_factory=dict)  # by the turns of the history
    flat: list[tuple[str, float]] = field(default_factory=list)
    catch_up: tuple[int, list[float]] = (0, [])
    idle: tuple[int, Idle] = (0, Idle(0, 0.0))
    search: list[tuple[int, list[Row]]] = field(default_factory=list)
    peers: dict[int, list[Measured]] = field(default_factory=dict)
    paces: list[float] = field(default_factory=list)  # of the machine at the start, in the middle and at the end
    load: float = 0.0  # of the machine at the start

    def read(self, size: int, what: str) -> float:
        return float(statistics.median([getattr(found, what) for found in self.reads[size]]))

    def rate(self, size: int) -> float:
        return self.truths[size].bytes / 1e6 / self.read(size, "seconds")

    def disk(self, size: int) -> float:
        return self.read(size, "disk_bytes") / self.truths[size].bytes


def written(findings: Findings, seconds: float, size: str) -> str:
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
            command="make bench" if size == "full" else f"python -m tests.bench --size {size}",
        ),
        _table(_GOALS, _goals(findings)),
        "## How the first read grows\n\n" + _table(_GROWTH, _growth(findings)),
        *(
            _REPORTS.format(turns=turns) + _table(_GOALS, _reports(answered)) + _missed(answered)
            for turns, answered in findings.reports.items()
        ),
        _FLAT + _table(("with", "processor time of one more turn"), _flat(findings)),
        *(_SEARCH.format(messages=n) + _table(_GOALS, rows) for n, rows in findings.search),
        _PEERS
        + "\n".join(f"{size:,} MB:\n\n" + _table(_PEER_COLUMNS, _peers(findings, size)) for size in findings.compared),
        _WHY,
    ]
    return "\n".join(sections)


def _goals(found: Findings) -> Iterator[Row]:
    middle, *_ = found.compared
    *_, large, largest = found.reads
    wrong = [read.wrong for reads in found.reads.values() for read in reads if read.wrong]
    exact = "exact to the token, cost exact"
    yield goal("totals against the truth", exact, wrong[0] if wrong else "exact", not wrong)
    database, off = found.opencode
    yield goal(f"the same for opencode, {database.turns:,} turns", exact, off or "exact", not off)
    rate = found.rate(middle)
    rivals = [peer.first for peer in found.peers.get(middle, []) if not peer.why_not]
    first = found.read(middle, "first_total")
    fastest = f"<= {min(rivals):.1f} s, the fastest below" if rivals else "the fastest"
    yield goal(f"first exact total, {middle} MB", fastest, f"{first:.1f} s", not rivals or first <= min(rivals))
    yield goal(f"first read of {middle} MB, search included", ">= 40 MB/s", f"{rate:.1f} MB/s", rate >= 40)
    peak, twice = (found.read(size, "peak_bytes") / 1e6 for size in (large, largest))
    yield goal(f"memory of all processes, {large:,} MB", "<= 300 MB", f"{peak:.0f} MB at most", peak <= 300)
    yield goal(f"the same, {largest:,} MB", "no higher, give or take 5 %", f"{twice:.0f} MB", twice <= 1.05 * peak)
    slowest = max(read.slowest_status for reads in found.reads.values() for read in reads)
    yield goal("slowest `status` meanwhile", "<= 200 ms", _ms(slowest), slowest <= 0.2)
    disk = found.disk(middle)
    yield goal("disk for a byte of log", "<= 0.65", f"{disk:.2f}", disk <= 0.65)
    for size, asked in found.asked.items():
        what = f"`burnctl summary --json`, whole process, {size} MB"
        yield goal(what, "<= 60 ms", _ms(asked.process), asked.process <= 0.06)
        yield goal("the daemon's part of it, over the socket", "<= 10 ms", _ms(asked.daemon), asked.daemon <= 0.01)
        yield goal("a table for a person", "<= 150 ms", _ms(asked.terminal), asked.terminal <= 0.15)
    yield goal("`burnctl` over a bare interpreter", "<= 25 ms", _ms(found.start_up), found.start_up <= 0.025)
    p50, p99 = _at(found.lines, 50), _at(found.lines, 99)
    yield goal("line written to line in a report, p50", "<= 50 ms", _ms(p50), p50 <= 0.05)
    yield goal("the same, p99", "<= 150 ms", _ms(p99), p99 <= 0.15)
    p50, p99 = _at(found.lines_while_reading, 50), _at(found.lines_while_reading, 99)
    what = f"the same while old logs are read, p50 / p99 of {len(found.lines_while_reading)}"
    yield goal(what, "p99 <= 150 ms", f"{_ms(p50)} / {_ms(p99)}", p99 <= 0.15)
    turn, bare = found.live_turn
    shown = f"{turn:.1f} ms (a bare interpreter: {bare:.1f} ms)"
    yield goal("processor time of one live turn", "<= 15 ms", shown, turn <= 15)
    files, times = found.catch_up
    caught = statistics.median(times)
    yield goal(f"catch-up with nothing new, {files:,} files", "<= 50 ms", _ms(caught), caught <= 0.05)
    watched, idle = found.idle
    yield goal(f"idle with {watched:,} files: memory", "<= 80 MB", f"{idle.bytes / 1e6:.0f} MB", idle.bytes <= 80e6)
    yield goal("idle: share of a core", "<= 0.2 %", f"{idle.share * 100:.2f} %", idle.share <= 0.002)
    turns, took = found.why
    yield goal(f"`why` of one session of {turns:,} turns, over the socket", "<= 300 ms", _ms(took), took <= 0.3)
    hits, needles = found.recall
    yield goal("words of a single message, found", "all", f"{hits:,} of {needles:,}", hits == needles)


def goal(what: str, to_reach: str, measured: str, reached: bool) -> Row:
    return (what, to_reach, measured, "reached" if reached else "**not reached**")


_GROWTH = (
    "logs",
    "files",
    "turns",
    "first exact total",
    "MB/s",
    "processor ms/MB",
    "peak memory",
    "disk per byte",
    "slowest status",
)


def _growth(found: Findings) -> Iterator[Sequence[str]]:
    for size, truth in found.truths.items():
        processor = found.read(size, "processor") / truth.bytes * 1e9
        slowest = max(read.slowest_status for read in found.reads[size])
        yield (
            f"{size:,} MB",
            f"{truth.files:,}",
            f"{truth.turns:,}",
            f"{found.read(size, 'first_total'):.1f} s",
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


_PEER_COLUMNS = ("program", "first report", "logs imported", "later reports", "total", "disk per byte")


def _peers(found: Findings, size: int) -> Iterator[Sequence[str]]:
    truth = found.truths[size]
    later = _s(found.asked[size].process) if size in found.asked else ""
    yield (
        "burnd",
        _s(found.read(size, "first_total")),
        _s(found.read(size, "seconds")),
        later,
        "exact",
        f"{found.disk(size):.2f}",
    )
    for peer in found.peers.get(size, []):
        if peer.why_not:
            yield (peer.name, f"not measured: {peer.why_not}", "", "", "", "")
            continue
        off = abs(peer.dollars / float(truth.cost) - 1) * 100
        yield (
            peer.name,
            _s(peer.first),
            _s(peer.first) if peer.disk_bytes else "",
            _s(peer.report),
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

Written by `{command}` on {system}, {cores} cores, Python {python}, in {minutes:.0f} minutes. The load of the machine
was {load:.1f} at the start. Figures are medians of {runs} runs; the larger trees are read once. `--size small` tries
it.

The logs are generated by `tests/bench/corpus.py`, the same bytes every time, with their exact truth: messages in
several lines with growing usage, forks, subagents, responses made up by the client, repeated results, cut last lines.
Every program runs in its own process with its own home. Machines differ, so compare ratios within one run. The goals
were set on a machine where Python's `json` read such logs at 190 MB/s; here it read them at {slowest:.0f} to
{fastest:.0f} MB/s.

A first read ends when everything is in the ledger, the content, the index and the search index. The first exact total
comes before that, from the quick pass.

"""

_REPORTS = """## Reports over a history of {turns:,} turns

Processor time of a question in the daemon: the median of five, for the slowest question of each report. All questions
have the same bound (`tests/bench/reports.py`; the questions are in `tests/bench/queries.py` and
`tests/bench/causes.py`).

"""

_FLAT = """## One more turn

The cost of one more turn, from its line to its rows, must not depend on the length of its session, the number of
files or the length of the history. Processor time of all threads, medians of 60; the two cases of a pair alternate.

"""

_SEARCH = """## Search over {messages:,} messages

FTS5 is SQLite's, on the same words.

"""

_PEERS = """## Other programs

On the same logs in the same run, offline. ccusage, codeburn and tokscale read the logs for every report; only
agentsview stores conversations, as burnd does. Totals are compared with the truth. relayburn is not measured.

"""

_WHY = """## Where the time goes

- **First read.** Each line passes many small steps in Python (rail, prompt, call, change), and each block becomes a
  record, a line, a row and a document. Worker processes read, compress and split text; one thread of tantivy sorts
  the words, some 12 to 18 ms for each MB of log; the writer's interpreter is the bottleneck. Two cores that are two
  threads of one, as in many rented machines, each work a third to a half slower together.
- **Search.** A query of everyday words takes some 3.5 ms of processor time, nearly half of it for the ninety messages
  around its ten hits. The slowest have many or very common words: tantivy scores every message with one of them, 8 ns
  each.
- **Why.** The measured session has 18,600 blocks in 5,000 turns, and its context shrinks 216 times. Its rails are
  followed from the first turn; nearly half of the time adds up what each of 12,000 causes paid.
- **Idle.** A scan of all files every 55 s (some 50 ms for 10,000), a wake-up every five seconds, and two a second by
  tantivy, which polls its index.
- **Disk.** The ledger takes 0.13 bytes for each byte of log and the sidecars 0.14: lines of JSON that any tool reads.
  Large texts, 0.43 bytes of every byte, are compressed to 0.16. The search index takes 0.11 to 0.15, the index 0.12.
  Compressed, ledger and sidecars would take 0.05 together; a file system that compresses, such as btrfs or ZFS, does
  that.
"""
