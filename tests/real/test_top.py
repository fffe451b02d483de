"""The live view in a real terminal of 80 by 24 (tmux): it follows a session, takes keys, and leaves nothing behind."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from burnctl.demo_machine import live
from tests.burnctl.demo_home import DemoHome, demo_home

pytestmark = pytest.mark.real


class Tmux:
    """A terminal on a separate tmux server."""

    def __init__(self, name: str) -> None:
        assert shutil.which("tmux"), "tmux is not installed: make test-real installs it"
        self._name = name

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout

    def shown(self) -> str:
        return self.run("capture-pane", "-p")

    def until(self, check: Callable[[str], bool]) -> str:
        """The screen as soon as it is as it should be."""
        shown = ""
        for _ in range(300):
            shown = self.shown()
            if check(shown):
                return shown
            time.sleep(0.1)
        pytest.fail(f"not so in 30 s:\n{shown}")


@pytest.fixture
def own_demo() -> Iterator[DemoHome]:
    """A demo home of this test alone, since a session grows on it."""
    with demo_home() as demo:
        yield demo


@pytest.fixture
def tmux() -> Iterator[Tmux]:
    terminal = Tmux("burnctl-test")
    yield terminal
    subprocess.run(["tmux", "-L", "burnctl-test", "kill-server"], capture_output=True, check=False)


def test_the_live_view(own_demo: DemoHome, tmux: Tmux) -> None:
    demo = own_demo
    story = live()
    log = demo.machine.live_log(story, time.time() - 30)
    acts = iter(story.acts)
    log.act(next(acts))
    environment = " ".join(f"{name}={shlex.quote(value)}" for name, value in demo.machine.environment.items())
    command = f"env {environment} TZ=UTC PAGER=cat {sys.executable} -P -m burnctl top; echo the end; exec cat"
    tmux.run("new-session", "-d", "-x", "80", "-y", "24", command)
    first = tmux.until(lambda shown: "shop-api" in shown and "q quit" in shown)
    lines = first.splitlines()
    assert lines[0].startswith("today $")
    assert lines[23].startswith(" q quit · s sort (cost/min)")
    for act in acts:
        log.act(act)
    tmux.until(lambda shown: shown.count("29660267") >= 3 or shown.count("sonnet") >= 4)
    tmux.run("send-keys", "s")
    tmux.until(lambda shown: "s sort (cost)" in shown)
    tmux.run("send-keys", "Down")
    tmux.run("send-keys", "Enter")
    tmux.until(lambda shown: "any key goes back" in shown and "how it was billed" in shown)
    tmux.run("send-keys", "x")
    tmux.until(lambda shown: "q quit" in shown)
    tmux.run("resize-window", "-x", "120", "-y", "30")
    wide = tmux.until(lambda shown: len(shown.splitlines()) == 30 and "q quit" in shown.splitlines()[29])
    assert "activity" in wide  # a column that 80 columns have no room for
    tmux.run("send-keys", "q")
    after = tmux.until(lambda shown: "the end" in shown)
    assert "q quit" not in after


def test_it_waits_for_a_daemon_that_is_gone(own_demo: DemoHome, tmux: Tmux) -> None:
    """A message while the daemon is down; updates resume when it is back."""
    demo = own_demo
    environment = " ".join(f"{name}={shlex.quote(value)}" for name, value in demo.machine.environment.items())
    tmux.run("new-session", "-d", "-x", "80", "-y", "24", f"env {environment} {sys.executable} -P -m burnctl top; cat")
    tmux.until(lambda shown: "q quit" in shown)
    assert demo.run("down").returncode == 0
    tmux.until(lambda shown: "burnd is not running" in shown)
    assert demo.run("up").returncode == 0
    tmux.until(lambda shown: "q quit" in shown and "not running" not in shown)
