"""summary and compare as a person sees them, over a real daemon that has read the demo's logs."""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from pathlib import Path

import pytest

from burnctl.render.text import width_of
from burnd.contract.reports import DIMENSIONS
from burnd.ledger.sqlite_files import log_bytes
from burnd.recording.retention import LONG_LOG
from tests.burnctl.demo_home import DemoHome
from tests.burnctl.file_reads import FileReads

GROUPS = [*DIMENSIONS, "tag:persona"]


@pytest.mark.parametrize("by", GROUPS)
def test_rows_add_up_to_the_totals(demo: DemoHome, by: str) -> None:
    """However it is divided, it is the same bill; and the table fits the screen."""
    answer = demo.json("summary", "--by", by)
    assert sum(row["turns"] for row in answer["rows"]) == answer["totals"]["turns"] > 70
    assert sum(row["costUsd"] for row in answer["rows"]) == pytest.approx(answer["totals"]["costUsd"], abs=1e-12)
    for columns in (40, 80, 160):
        shown = demo.run("summary", "--by", by, columns=columns).stdout
        assert all(width_of(line) <= columns for line in shown.splitlines())
        assert "total" in shown


def test_filters_narrow_it(demo: DemoHome) -> None:
    """A tag, a project or a time gives a part of the whole, and parts of a tag's values make it up."""
    whole = demo.json("summary")["totals"]
    tagged = demo.json("summary", "--tag", "persona=senior")["totals"]
    rest = demo.json("summary", "--by", "tag:persona")["rows"]
    assert 0 < tagged["turns"] < whole["turns"]
    assert [row["turns"] for row in rest if row["key"] == "senior"] == [tagged["turns"]]
    assert demo.json("summary", "--since", "24h")["totals"]["turns"] < whole["turns"]
    assert demo.json("summary", "--workflow", "nightly")["totals"]["turns"] == tagged["turns"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("summary --since 1h", "No requests in the last hour; the last request was 19 h ago."),
        ("compare --since 30m", "No requests in the last 30 min; the last request was 19 h ago."),
        ("hotspots --since 2h --model gpt-5", "No requests match in the last 2 h; the last request was 19 h ago."),
        ("by-tool --tag persona=nobody", "No requests match; the last request was 19 h ago."),
        ("waste --until 2020-01-01", "No requests up to 2020-01-01; the last request was 19 h ago."),
        ("sessions --since 2h", "No sessions in the last 2 h; the last request was 19 h ago."),
        ("search cron --since 2h", "Nothing was found in the last 2 h; the last request was 19 h ago."),
        ("search zebrafish", "Nothing was found."),
        (
            "overhead --project shop-api --since 2h",
            "No sessions of shop-api in the last 2 h; the last request was 19 h ago.",
        ),
        ("limits --source openai-api", "No requests of openai-api."),
    ],
)
def test_nothing_found_says_where_there_would_be_something(demo: DemoHome, words: str, said: str) -> None:
    """An empty answer names the period and the age of the newest turn instead of printing an empty table."""
    done = demo.run(*words.split())
    # The age grows while the tests run.
    printed = re.sub(r"\b20 h ago", "19 h ago", done.stdout)
    assert (done.returncode, printed) == (0, said + "\n")


def test_charts_csv_and_quality(demo: DemoHome) -> None:
    """The other faces of the same answer."""
    chart = demo.run("summary", "--chart").stdout
    assert "█" in chart
    assert chart.count("$") > 7
    days = [line for line in chart.splitlines() if re.match(r"[A-Z][a-z]{2} [ \d]\d  ", line)]
    assert len({len(line) for line in days}) == 1, "amounts stand in a column"
    assert "by day" not in chart
    rows = list(csv.DictReader(io.StringIO(demo.run("summary", "--by", "project", "--csv").stdout)))
    assert sum(int(row["turns"]) for row in rows) == demo.json("summary")["totals"]["turns"], (
        "a sum counts nothing twice"
    )
    assert "first try" in demo.run("summary", "--quality").stdout
    judged = list(csv.DictReader(io.StringIO(demo.run("summary", "--quality", "--csv").stdout)))
    told = demo.json("summary", "--quality")["quality"]
    assert sum(int(row["completed"]) for row in judged) == told["sessions"]["completed"] > 0
    assert sum(int(row["editPrompts"]) for row in judged) == told["editPrompts"]
    by_session = list(csv.DictReader(io.StringIO(demo.run("summary", "--by", "session", "--csv").stdout)))
    assert by_session[0]["project"]
    assert by_session[0]["createdAt"]
    tree = list(csv.DictReader(io.StringIO(demo.run("summary", "--by", "agent", "--tree", "--csv").stdout)))
    nested = demo.json("summary", "--by", "agent", "--tree")["rows"]
    assert [row["depth"] for row in tree] == [str(row["depth"]) for row in nested]
    assert [float(row["subtreeCostUsd"]) for row in tree] == [row["subtree"]["costUsd"] for row in nested]


def test_compare(demo: DemoHome) -> None:
    """No data is empty and null, never nothing spent; too little is marked; what-if says what it is."""
    answer = demo.json("compare")
    empty = [cell for cell in answer["cells"] if cell["noData"]]
    assert empty
    assert all(cell["costPerTurn"] is None and cell["oneShotRate"] is None for cell in empty)
    assert any(cell["insufficientSample"] for cell in answer["cells"])
    shown = demo.run("compare").stdout
    assert "$0.00 " not in shown
    assert "~" in shown
    what_if = demo.run("compare", "--what-if", "claude-haiku-4-5").stdout
    assert "arithmetic" in what_if
    for columns in (40, 80, 160):
        assert all(width_of(line) <= columns for line in demo.run("compare", columns=columns).stdout.splitlines())
    cells = list(csv.DictReader(io.StringIO(demo.run("compare", "--csv").stdout)))
    assert len(cells) == len(answer["cells"])
    assert {cell["noData"] for cell in cells} == {"true", "false"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("summary", "--by", "colour"), 2, "colour"),
        (("summary", "--since", "yesteryear"), 2, "yesteryear"),
        (("summary", "--tag", "nokey"), 2, "KEY=VALUE"),
        (("summary", "--tag", "k=a", "--tag", "k=b"), 2, "--tag k=a and --tag k=b exclude each other"),
        (("summary", "--tree"), 2, "--by agent"),
        (("summary", "--json", "--csv"), 2, "not allowed with"),
        (("compare", "--csv", "--json"), 2, "not allowed with"),
        (("summary", "--source", "nobody"), 2, "nobody"),
        (("summary", "--activity", "idling"), 2, "idling"),
        (("summary", "--since", "1d", "--until", "2d"), 2, "until is before since"),
        (("limits", "--source", "nobody"), 2, "nobody"),
        (("summary", "--session", "zzz"), 1, "zzz"),
        (("summary", "--limit", "0"), 2, "number"),
        (("compare", "--what-if", "no-such-model"), 1, "no-such-model"),
        (("compare", "--min-sample", "x"), 2, "number"),
    ],
)
def test_mistakes_are_told_in_one_line(demo: DemoHome, arguments: tuple[str, ...], code: int, said: str) -> None:
    """What is wrong, and what would be right."""
    done = demo.run(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


REPORTS = [
    *(("summary", "--by", by, "--quality") for by in GROUPS),
    ("summary", "--by", "agent", "--tree", "--chart"),
    ("summary", "--tag", "persona=senior", "--since", "30d"),
    ("compare", "--what-if", "claude-haiku-4-5"),
    ("compare", "--by", "tag:persona"),
    ("limits",),
    ("statusline",),
    ("export", "--format", "csv"),
    ("overhead", "--project", "/home/dev/app"),
]


def wait_until_tidied(home: Path) -> None:
    """Until no write-ahead log is long: burnd reads such a one when it has been quiet for a while, and empties it."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if all(log_bytes(database) <= LONG_LOG for database in (home / "index/burn.db", home / "content/blobs.db")):
            return
        time.sleep(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs inotify")
def test_no_report_reads_content(demo: DemoHome) -> None:
    """I5: the kernel sees nobody open or read a file below content/ while any report runs, and sees who does."""
    session = demo.json("sessions")["sessions"][0]["sessionId"]
    wait_until_tidied(Path(demo.home))
    with FileReads(Path(demo.home) / "content") as content:
        content.wait_for_quiet()
        for report in REPORTS:
            done = demo.run(*report)
            assert (done.returncode, done.stderr) == (0, ""), report
            assert content.seen() == [], report
        assert demo.run("show", session).returncode == 0
        assert content.seen()
