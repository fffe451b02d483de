"""The HTML report over the demo: its totals, what it leaves out, and that it needs nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from burnctl.commands.report import groups_of
from tests.burnctl.demo_home import DemoHome

VOID = {"meta", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """Elements that must be closed are; `values` are the exact numbers by the id of their element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: set[str] = set()
        self.values: dict[str, float] = {}
        self.feed(text)
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        facts = dict(attrs)
        if facts.get("id"):
            self.values[str(facts["id"])] = float(facts.get("data-v") or "nan")
        assert not any(name.startswith("on") for name in facts)
        if tag not in VOID and not self.rawdata[: self.rawdata.find(">")].endswith("/"):
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


@pytest.mark.parametrize("filters", [(), ("--project", "shop-api"), ("--since", "3d")])
def test_a_report_has_the_totals_of_the_summary(demo: DemoHome, filters: tuple[str, ...], tmp_path: Path) -> None:
    done = demo.run("report", "-o", str(tmp_path / "report.html"), *filters)
    assert (done.returncode, done.stdout) == (0, "")
    page = Page((tmp_path / "report.html").read_text())
    totals = demo.json("summary", *filters)["totals"]
    assert page.values["cost"] == pytest.approx(totals["costUsd"], abs=1e-12)
    assert page.values["requests"] == totals["turns"]
    assert page.values["tokens"] == sum(totals["usage"].values())
    assert page.values["avoidable"] == pytest.approx(demo.json("waste", *filters)["avoidable"]["costUsd"])


def test_a_report_needs_nothing_from_elsewhere(demo: DemoHome) -> None:
    """No address, no file, no other script: it can be sent and read offline."""
    text = demo.run("report", "-o", "-").stdout
    assert not re.search(r"https?:|src=|href=|@import|url\(", text)
    assert Page(text).tags.isdisjoint({"link", "img", "iframe", "object", "embed"})


def test_text_of_sessions_is_left_out_unless_requested(demo: DemoHome) -> None:
    plain, full = demo.run("report", "-o", "-").stdout, demo.run("report", "-o", "-", "--with-text").stdout
    for title in demo.sessions:
        assert title not in plain
    assert "Move the nightly jobs to one scheduler" in full
    for words in ("FAIL rounds to cents", "cat /var/log/jobs/nightly.log"):
        assert words not in plain
        assert words in full.replace("&#x27;", "'")


def test_groups_of_a_period_are_its_bill(demo: DemoHome) -> None:
    tools, commands = demo.json("hotspots"), demo.json("hotspots", "--by", "command")
    groups = {group["key"]: group for group in groups_of(tools, commands)}
    assert sum(group["costUsd"] for group in groups.values()) == pytest.approx(tools["totals"]["costUsd"])
    reads = [part["key"] for part in groups["files"]["parts"]]
    assert {"Read", "cat"} <= set(reads)
    assert groups["shell"]["costUsd"] > 0


def test_a_report_that_cannot_be_written(demo: DemoHome, tmp_path: Path) -> None:
    done = demo.run("report", "-o", str(tmp_path / "no" / "where.html"))
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert demo.run("report").returncode == 2


def test_a_period_without_requests(demo: DemoHome) -> None:
    done = demo.run("report", "-o", "-", "--until", "2020-01-01")
    assert "No requests match." in done.stdout
    Page(done.stdout)
