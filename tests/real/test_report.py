"""The HTML report in a real browser: it fits narrow and wide windows, runs without errors, and sorts its tables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.burnctl.demo_home import DemoHome

pytestmark = pytest.mark.real

# Written into a copy of the page: what is wider than the window, outside of what may be scrolled.
PROBE = """
<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll") &&
    e.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(e).display !== "none");
  const table = document.querySelector("table.s");
  const column = n => [...table.tBodies[0].rows].map(r => +r.cells[n].dataset.v);
  const before = column(1);
  const button = table.querySelectorAll("th button")[1];
  if (button) { button.click(); button.click(); }
  parent.postMessage(JSON.stringify({
    inner: innerWidth, scroll: document.documentElement.scrollWidth, wide: wide.map(e => e.outerHTML.slice(0, 120)),
    before, after: column(1), background: getComputedStyle(document.body).backgroundColor,
    text: document.getElementById("cost").textContent, drawn: document.querySelectorAll(".chart rect").length,
    pictures: document.querySelectorAll("svg.flow").length }), "*");
});
</script>
"""
# No window of the browser is as narrow as a phone; a frame is.
FRAME = """
<!doctype html><script>addEventListener("message", e => { document.body.dataset.found = e.data })</script>
<body style="margin:0"><iframe src="probed.html" style="border:0;width:{width}px;height:900px"></iframe></body>
"""


def browse(page: Path, tmp_path: Path, width: int, *flags: str) -> dict[str, Any]:
    """Opens the page at this width, and returns what the probe found in it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "chromium is not installed: make test-real installs it"
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("{width}", str(width)))
    (tmp_path / "probed.html").write_text(page.read_text().replace("</main>", f"</main>{PROBE}"))
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1700,1000",
               f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=3000",
               *flags, "--dump-dom", frame.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    answer = json.loads(unescape(found[1]))
    assert isinstance(answer, dict)
    return answer


@pytest.fixture
def report(demo: DemoHome, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    assert demo.run("report", "-o", str(path), "--with-text").returncode == 0
    return path


@pytest.mark.parametrize("width", [400, 1600])
def test_nothing_overflows(demo: DemoHome, report: Path, tmp_path: Path, width: int) -> None:
    found = browse(report, tmp_path, width)
    assert found["inner"] == width
    assert found["scroll"] <= width
    assert found["wide"] == []
    assert found["text"] == f"${demo.json('summary')['totals']['costUsd']:,.2f}"
    assert found["drawn"] > 3
    assert found["pictures"] == 5


def test_a_click_sorts_a_table(report: Path, tmp_path: Path) -> None:
    found = browse(report, tmp_path, 1200)
    assert found["before"] == sorted(found["before"], reverse=True)
    assert found["after"] == sorted(found["before"])


def test_light_and_dark(report: Path, tmp_path: Path) -> None:
    light, dark = (
        browse(report, tmp_path, 1200, f"--blink-settings=preferredColorScheme={scheme}")["background"]
        for scheme in (1, 0)
    )
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 24, 27)")


def test_without_scripts_everything_is_there(report: Path, tmp_path: Path) -> None:
    """The tables are sorted already, and the pictures are part of the page."""
    text = re.sub(r"<script>.*?</script>", "", report.read_text(), flags=re.DOTALL)
    page = tmp_path / "plain.html"
    page.write_text(text)
    found = browse(page, tmp_path, 800)
    assert found["before"] == found["after"] == sorted(found["before"], reverse=True)
    assert found["pictures"] == 5


def test_it_prints(report: Path, tmp_path: Path) -> None:
    program = shutil.which("chromium") or "chromium"
    pdf = tmp_path / "report.pdf"
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               f"--print-to-pdf={pdf}", report.as_uri()]  # fmt: skip
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert pdf.read_bytes().startswith(b"%PDF")
