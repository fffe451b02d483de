"""Reports of burnctl with a real daemon that has read the demo's logs."""

from __future__ import annotations

import csv
import io
import json
import os
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
def test_nothing_found_shows_where_there_would_be_something(demo: DemoHome, words: str, said: str) -> None:
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
    """Without data the answer is empty and null rather than zero; small samples and what-if figures are marked."""
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
        (("why", "zzz"), 1, "zzz"),
        (("why", "x", "--last"), 2, "--last"),
        (("explain", "weather"), 2, "weather"),
        (("why", "x", "--turn", "-1"), 2, "number"),
        (("why", "x", "--limit", "0"), 2, "number"),
        (("why", "x", "--rail", "a"), 2, "--turn"),
        (("flow", "x", "--mermaid", "--svg", "x.svg"), 2, "--svg"),
        (("waste", "--min-cost", "much"), 2, "dollars"),
        (("hotspots", "--by", "weather"), 2, "weather"),
        (("by-tool", "--session", "nowhere"), 1, "nowhere"),
        (("waste", "--project", "nowhere"), 1, "nowhere"),
        (("waste", "--limit", "501"), 2, "from 1 to 500"),
        (("why", "x", "--limit", "2001"), 2, "from 1 to 2000"),
        (("why", "x", "--turn", "0", "--tree"), 2, "--tree"),
        (("why", "x", "--turn", "0", "--since", "1h"), 2, "--since"),
        (("flow", "x", "--json", "--svg", "x.svg"), 2, "--json"),
    ],
)
def test_mistakes_are_reported_in_one_line(demo: DemoHome, arguments: tuple[str, ...], code: int, said: str) -> None:
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
    """I5: the kernel reports no open or read below content/ while any report runs; a control read is reported."""
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


def test_every_session_is_explained(demo: DemoHome) -> None:
    """Each session's causes are what it cost; the page fits the screen and ends with the summary's total."""
    for session in demo.sessions.values():
        summary, answer = demo.json("summary", "--session", session), demo.json("why", session)
        assert answer["totals"] == summary["totals"]
        told = sum(row["costUsd"] for row in answer["causes"])
        assert told == pytest.approx(summary["totals"]["costUsd"], abs=1e-12)
        assert sum(row["share"] for row in answer["causes"]) == pytest.approx(1)
    for columns in (40, 80, 160):
        shown = demo.run("why", session, columns=columns).stdout
        assert all(width_of(line) <= columns for line in shown.splitlines())
        assert "where it went" in shown
        assert "burnctl flow " in shown


def test_groups_are_the_bill_and_fit_on_a_screen(demo: DemoHome) -> None:
    """Of every session: at most nine rows, whose parts add up to what the session cost."""
    for session in demo.sessions.values():
        answer = demo.json("why", session)
        cost = answer["totals"]["costUsd"]
        assert sum(group["costUsd"] for group in answer["groups"]) == pytest.approx(cost, abs=1e-12)
        lines = demo.run("why", session).stdout.splitlines()
        first = next(n for n, line in enumerate(lines) if line.startswith("where it went"))
        assert lines.index("", first) - first <= 10


def test_a_session_is_found_by_what_people_remember(demo: DemoHome) -> None:
    """By a part of its title, as the most expensive one, as the last one of a folder or of all."""
    assert demo.json("why", "Cart Priced")["sessionId"] == demo.sessions["How is the cart priced?"]
    rows = demo.json("summary", "--by", "session")["rows"]
    assert demo.json("why", "--costliest")["sessionId"] == max(rows, key=lambda row: row["costUsd"])["key"]
    sessions = demo.json("sessions")["sessions"]
    assert demo.json("why", "--last")["sessionId"] == sessions[0]["sessionId"]
    assert demo.json("why")["sessionId"] == sessions[0]["sessionId"]
    infra = next(one for one in sessions if one["project"].endswith("/infra"))
    os.makedirs(infra["project"], exist_ok=True)
    there = demo.run("why", "--json", folder=infra["project"]).stdout
    assert json.loads(there)["sessionId"] == infra["sessionId"]
    several = demo.run("why", "the")
    assert several.returncode == 1
    assert "sessions have 'the' in their title; use an id: " in several.stderr


def test_a_part_of_the_bill_is_opened(demo: DemoHome) -> None:
    """By file, command, request and kind, at any width; the rows of each add up to the bill."""
    session = demo.sessions["Why does the checkout test flake?"]
    cost = demo.json("why", session)["totals"]["costUsd"]
    for by, words in (
        ("file", "src/checkout.ts"),
        ("command", "npm test"),
        ("turn", "request"),
        ("kind", "shell output"),
    ):
        for columns in (40, 80, 160):
            shown = demo.run("why", session, "--by", by, columns=columns).stdout
            assert words in shown
            assert all(width_of(line) <= columns for line in shown.splitlines())
    for by in ("file", "command"):
        rows = demo.json("why", session, "--by", by)["rows"]
        assert sum(row["costUsd"] for row in rows) == pytest.approx(cost)
    steps = [step for lane in demo.json("why", session, "--by", "turn")["lanes"] for step in lane["steps"]]
    assert sum(step["costUsd"] for step in steps) == pytest.approx(cost)


def test_a_tree_opens_what_subagents_cost(demo: DemoHome) -> None:
    """Closed, a subagent is one line below its call; opened, its own causes are below it."""
    session = demo.sessions["How is the cart priced?"]
    closed, opened = demo.run("why", session).stdout, demo.run("why", session, "--tree").stdout
    assert "Explore" in closed
    assert "part_0.ts" not in closed
    assert "part_0.ts" in opened
    for row in demo.json("why", session, "--tree")["causes"]:
        for agent in row.get("agents", ()):
            assert sum(below["costUsd"] for below in agent["causes"]) == pytest.approx(agent["costUsd"])


def test_one_turn_and_its_cache_miss(demo: DemoHome) -> None:
    """The turn after tests that outlasted the cache paid for everything again, and the page reports it."""
    session = demo.sessions["Why does the checkout test flake?"]
    shown = demo.run("why", session, "--turn", "6").stdout
    assert "cache write" in shown
    assert "the cache expired while a call ran" in " ".join(shown.split())
    answer = demo.json("why", session, "--turn", "6")
    assert sum(row["costUsd"] for row in answer["causes"]) == pytest.approx(answer["totals"]["costUsd"])


def test_hotspots_are_the_bill(demo: DemoHome) -> None:
    """For every grouping and filter, the column adds up to the summary and fits the screen."""
    asked = [(), ("--since", "3d"), ("--project", "shop-api", "--rank", "rides")]
    summaries = [demo.json("summary", *filters[:2]) for filters in asked]
    for by in ("tool", "file", "command", "mcp", "skill", "subagent", "prompt", "prefix", "cache-miss"):
        for filters, summary in zip(asked, summaries, strict=True):
            answer = demo.json("hotspots", "--by", by, *filters)
            assert answer["totals"] == summary["totals"]
            told = sum(row["costUsd"] for row in answer["rows"])
            assert told == pytest.approx(summary["totals"]["costUsd"], abs=1e-12)
            assert all(row["key"] != "not yet explained" for row in answer["rows"])
        for columns in (40, 80, 160):
            shown = demo.run("hotspots", "--by", by, columns=columns).stdout
            assert all(width_of(line) <= columns for line in shown.splitlines())


def test_by_tool(demo: DemoHome) -> None:
    """The tools with their calls and failures, then what is no tool."""
    answer = demo.json("by-tool")
    assert answer["rows"] == demo.json("hotspots")["rows"]
    bash = next(row for row in answer["rows"] if row["key"] == "Bash")
    assert bash["calls"] > bash["errors"] > 0
    shown = demo.run("by-tool", "--limit", "3").stdout
    assert "more tools)" in shown
    assert "(system prompt and tools)" in shown
    rows = demo.run("by-tool", "--csv").stdout.splitlines()
    assert rows[0].startswith("key,kind,calls")
    assert len(rows) == 1 + len(answer["rows"])


def test_waste_is_found(demo: DemoHome) -> None:
    """Each kind that the demo's sessions were made to have, with where, how much and what to do; twice the same."""
    answer = demo.json("waste")
    found = {one["kind"]: one for one in answer["findings"]}
    assert found.keys() == {
        "reread", "rode-far", "oversized", "retry-loop", "failure-run", "edit-revert", "cache-miss", "prefix-bloat",
        "compaction-churn", "delegation",
    }  # fmt: skip
    assert found["retry-loop"]["evidence"]["error"]
    assert answer["totals"] == demo.json("summary")["totals"]
    assert demo.json("waste") == answer
    for columns in (40, 80, 160):
        shown = demo.run("waste", columns=columns).stdout
        assert all(width_of(line) <= columns for line in shown.splitlines())
        assert shown.startswith("Avoidable: about $")
        assert shown.count("larger pieces of work") == 1
    assert "src/checkout.ts: read again 4 times" in demo.run("waste").stdout
    one = demo.run("waste", "--kind", "cache-miss").stdout
    assert "cache misses" in one
    assert "read again" not in one
    parts = [kind["costUsd"] for kind in answer["kinds"]]
    assert max(parts) <= answer["avoidable"]["costUsd"] <= sum(parts)
    few = demo.json("waste", "--min-cost", "0.05")["findings"]
    assert few
    assert all(one["costUsd"] >= 0.05 for one in few)
    assert demo.run("waste", "--session", demo.sessions["Explain the deploy script"]).stdout.startswith("Nothing")


def test_instructions_are_listed_by_file_and_section(demo: DemoHome) -> None:
    """Costs of files plus the rest are the cost of prefixes; a note states that file sizes are current."""
    folder = os.path.join(demo.machine.folder, "you", "shop-api")
    answer = demo.json("overhead", "--project", folder)
    claude = next(source for source in answer["sources"] if source["source"] == "claude-code")
    assert [(os.path.basename(file["path"]), file["how"]) for file in claude["files"]] == [
        ("CLAUDE.md", "global"),
        ("CLAUDE.md", "project"),
        ("style.md", "import"),
        ("CLAUDE.md", "nested"),
    ]
    told = sum(file["costUsd"] or 0 for file in claude["files"]) + claude["rest"]["costUsd"]
    assert told == pytest.approx(claude["costUsd"])
    assert answer["neverCalled"] == ["designs", "tickets"]
    for columns in (40, 80, 160):
        shown = demo.run("overhead", "--project", folder, columns=columns).stdout
        assert all(width_of(line) <= columns for line in shown.splitlines())
        assert "History" in shown
    assert "else their size today" in " ".join(demo.run("overhead", "--project", folder, "--notes").stdout.split())


def test_a_session_as_a_picture(demo: DemoHome, tmp_path: Path) -> None:
    """In the terminal, as an SVG file and as a diagram, all with the same cost."""
    session = demo.sessions["How is the cart priced?"]
    cost = f"${demo.json('summary', '--session', session)['totals']['costUsd']:.2f}"
    for columns in (40, 80, 160):
        shown = demo.run("flow", session, columns=columns).stdout
        assert all(width_of(line) <= columns for line in shown.splitlines())
        assert cost in shown
    picture = tmp_path / "flow.svg"
    assert demo.run("flow", session, "--svg", str(picture)).returncode == 0
    assert cost in picture.read_text()
    assert cost in demo.run("flow", session, "--mermaid").stdout
    assert demo.run("flow", session, "--svg", str(tmp_path / "no" / "where.svg")).returncode == 1
