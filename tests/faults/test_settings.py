"""Part G: mistakes in the settings."""

from __future__ import annotations

import sys

from burnd.paths import Home
from tests import warm
from tests.faults import tally
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import environment, running

_BAD_SETTINGS = {
    "[content]\nstor = 'full'\n": "content.stor: ",
    "\x00": "is not TOML",
}


def test_bad_settings_stop_a_start_and_nothing_that_runs(home: Home) -> None:
    """F81: the start names file, key and reason, without a traceback; a daemon that runs keeps what it read."""
    home.root.mkdir(mode=0o700)
    home.config.write_text("[content]\nstore = 'hash-only'\n")
    with running(home) as daemon:
        watched = Watched(home, daemon)
        home.config.write_text(next(iter(_BAD_SETTINGS)))
        watched.append("s", whole(answers("s", 0, 2)))
        assert watched.recorded("s") == sum_of(0, 1)
        assert watched.call("status")["content"]["mode"] == "hash-only"
        assert daemon.terminate() == 0
    for text, reason in _BAD_SETTINGS.items():
        home.config.write_text(text)
        command = [sys.executable, "-m", "burnd", "run"]
        done = warm.run(command, env=environment(home), capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert done.stderr.startswith(f"burnd: {home.config}: {reason}"), done.stderr
        assert len(done.stderr.splitlines()) <= 2
    tally.bad_inputs(len(_BAD_SETTINGS) + 1)
