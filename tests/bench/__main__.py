"""Runs the benchmarks and writes docs/benchmarks.md: `make bench`, or `python -m tests.bench --size small` to try it.

Corpora and homes are below `.bench/` (or BENCH_DIR). Corpora are reused by the next run.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import structlog

from tests.bench import asking, flat, live, machine, opencode, peers, reports, resting, search
from tests.bench.corpus import Tree, Truth
from tests.bench.first_read import FirstRead, first_read, recall
from tests.bench.page import Findings, written

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"


class Sizes(NamedTuple):
    """The size of each benchmark."""

    trees: tuple[int, ...]  # megabytes
    compared: tuple[int, ...]  # those that other programs read, too
    runs: int  # of trees up to the first of `compared`; larger ones are read once
    lines: int
    idle_files: int
    idle_s: float
    known_files: int
    long_session: int
    many_files: int
    history: int
    reported: tuple[int, ...]  # turns of the histories that reports are asked of
    messages: tuple[int, ...]
    opencode_sessions: int
    explained_turns: int


FULL = Sizes(
    trees=(50, 500, 2000, 4000),
    compared=(500, 50, 2000),
    runs=5,
    lines=200,
    idle_files=10_000,
    idle_s=110.0,
    known_files=2000,
    long_session=10_000,
    many_files=20_000,
    history=1_000_000,
    reported=tuple(reports.BOUNDS),
    messages=(100_000, 1_000_000),
    opencode_sessions=400,
    explained_turns=5000,
)
MEDIUM = FULL._replace(
    trees=(50, 200, 500),
    compared=(200,),
    runs=2,
    lines=100,
    idle_s=60.0,
    reported=(250_000,),
    messages=(100_000,),
    opencode_sessions=400,
    history=250_000,
)
SMALL = Sizes((10, 20, 40), (20,), 2, 30, 300, 5.0, 200, 500, 300, 60_000, (60_000,), (10_000,), 60, 500)
SIZES = {"full": FULL, "medium": MEDIUM, "small": SMALL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size", choices=SIZES, default="full", help="of logs and histories; small only prints the page"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave the other programs out")
    parser.add_argument("--output", type=Path, help="write the page to this file")
    given = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    folder = Path(os.environ.get("BENCH_DIR") or ROOT / ".bench")
    begun = time.perf_counter()
    findings = measure(folder, SIZES[given.size], with_peers=not given.no_peers)
    page = written(findings, time.perf_counter() - begun, given.size)
    output = given.output or (None if given.size == "small" else PAGE)
    if output is not None:
        output.write_text(page)
    print(page)
    wrong = [found.wrong for reads in findings.reads.values() for found in reads] + [findings.opencode[1]]
    sys.exit(1 if any(wrong) else 0)


def measure(folder: Path, sizes: Sizes, *, with_peers: bool) -> Findings:
    middle = sizes.compared[0]
    second = min(size for size in sizes.trees if size > middle)
    findings = Findings(sizes.runs, load=os.getloadavg()[0], compared=sizes.compared)
    trees = {size: tree_of(folder, size) for size in sizes.trees}
    findings.paces = [machine.json_rate(trees[middle][0])]
    for size, (tree, truth) in trees.items():
        runs = sizes.runs if size <= middle else 1
        findings.reads[size] = [read(folder, size, tree, truth, n, runs) for n in range(runs)]
        findings.truths[size] = truth
    say("opencode's database")
    findings.opencode = opencode.first_read(folder / "homes" / "opencode", sizes.opencode_sessions)
    findings.paces.append(machine.json_rate(trees[middle][0]))
    for size in (middle, second):
        say(f"asking over {size} MB")
        findings.asked[size] = asking.asking(home_of(folder, size), trees[size][0])
    findings.recall = recall(home_of(folder, middle), *trees[middle])
    findings.start_up = asking.start_up(folder / "homes" / "nothing")
    say("from line to report")
    findings.lines = asking.line_to_report(home_of(folder, middle), trees[middle][0], sizes.lines)
    busy = folder / "homes" / "busy"
    findings.lines_while_reading = asking.line_to_report(busy, trees[second][0], sizes.lines, while_reading=True)
    shutil.rmtree(busy, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder) as root:
        findings.live_turn = (live.turn_ms(Path(root)), live.bare_ms())
    say("explaining a long session")
    findings.why = (sizes.explained_turns, asking.why(folder / "homes" / "long", sizes.explained_turns))
    say("reports over a long history")
    findings.reports = {turns: reports.measured(turns) for turns in sizes.reported}
    say("one more turn")
    flats = folder / "homes" / "flat"
    for what, *cases, numbers in (
        ("a session of {:,} turns", flat.Case(), flat.Case(turns=sizes.long_session), (10, sizes.long_session)),
        ("{:,} files", flat.Case(files=100), flat.Case(files=sizes.many_files), (100, sizes.many_files)),
        ("a history of {:,} turns", flat.Case(), flat.Case(history=sizes.history), (0, sizes.history)),
    ):
        took = flat.compared(flats, *cases)
        findings.flat += zip(map(what.format, numbers), took, strict=True)
    say("resting")
    findings.catch_up = (sizes.known_files, resting.catch_up(folder / "homes" / "known", sizes.known_files, sizes.runs))
    findings.idle = (sizes.idle_files, resting.idle(folder / "homes" / "idle", sizes.idle_files, sizes.idle_s))
    say("searching")
    findings.search = [(count, search.measured(count, folder / "search")) for count in sizes.messages]
    if with_peers:
        say("peers")
        peers.install(folder / "peers")
        for size in sizes.compared:
            runs = sizes.runs if size == middle else 1
            findings.peers[size] = [peers.measure(peer, folder / "peers", trees[size][0], runs) for peer in peers.PEERS]
    findings.paces.append(machine.json_rate(trees[middle][0]))
    return findings


def tree_of(folder: Path, megabytes: int) -> tuple[Path, Truth]:
    """A tree of that size, generated if it is missing."""
    place = folder / "corpora" / f"{megabytes}"
    truth_file = place / "truth.pickle"
    if not truth_file.exists():
        say(f"making {megabytes} MB of logs")
        truth = Tree(place).grow(megabytes * 1_000_000)
        truth_file.write_bytes(pickle.dumps(truth))
    return place, pickle.loads(truth_file.read_bytes())


def home_of(folder: Path, megabytes: int) -> Path:
    return folder / "homes" / f"{megabytes}"


def read(folder: Path, size: int, tree: Path, truth: Truth, n: int, runs: int) -> FirstRead:
    found = first_read(home_of(folder, size), tree, truth)
    rate = truth.bytes / 1e6 / found.seconds
    say(
        f"first read of {size} MB, {n + 1} of {runs}: exact total after {found.first_total:.1f} s, {rate:.1f} MB/s, "
        f"{found.peak_bytes / 1e6:.0f} MB, {found.wrong or 'exact'}"
    )
    return found


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
