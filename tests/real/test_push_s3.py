"""Pushes to an S3 bucket, as moto serves one, read back with DuckDB or pyarrow."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from burnctl.push.segments import SegmentTarget
from burnctl.push.target import Batch, Refused, Unreachable
from burnd.paths import Home
from tests.burnctl.push import rows as made
from tests.burnctl.runner import burnctl
from tests.server.documented import furnish
from tests.server.wire import running, until

pytestmark = pytest.mark.real
parquet = pytest.importorskip("pyarrow.parquet")
AWS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """A server with a bucket `team`."""
    program = shutil.which("moto_server")
    assert program, "moto is not installed: make test-real installs it"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _makes_bucket(url), 60, (tmp_path / "moto.log").read_text)
        yield url
    finally:
        server.kill()
        server.wait()


def _makes_bucket(url: str) -> bool:
    try:
        with urlopen(Request(f"{url}/team", method="PUT"), timeout=5):
            return True
    except OSError:
        return False


@pytest.fixture
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**AWS, "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)
    return endpoint


def messages(target: SegmentTarget) -> list[tuple[str, int]]:
    tables: list[Any] = list(target._newest("turns", target._segments("turns", "m1")))
    return sorted(
        row for one in tables for row in zip(one["message_id"].to_pylist(), one["seq"].to_pylist(), strict=True)
    )


@pytest.mark.usefixtures("aws")
def test_rows_cursor_reset_and_compaction() -> None:
    target = SegmentTarget("s3://team/burn")
    assert target.open("m1") is None
    for seq in range(1, 40):
        target.send(Batch("m1", {"turns": [made.turn("m1", f"{seq % 7}", seq)]}, f"c{seq}", seq))
    assert target.open("m1") == "c39"
    newest = [(str(n), max(seq for seq in range(1, 40) if seq % 7 == n)) for n in range(7)]
    assert messages(target) == newest
    assert len(target._segments("turns", "m1")) <= 17
    target.finish_reset("m1", 36)
    assert messages(target) == [row for row in newest if row[1] >= 36]
    target.compact("m1")
    assert len(target._segments("turns", "m1")) == 1
    assert messages(target) == [row for row in newest if row[1] >= 36]


@pytest.mark.usefixtures("aws")
def test_a_bucket_that_is_not_there_is_refused() -> None:
    with pytest.raises(Refused, match="nowhere"):
        SegmentTarget("s3://nowhere/burn").send(Batch("m1", {"turns": [made.turn("m1", "a", 1)]}, "c1", 1))


def test_a_server_that_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**AWS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Unreachable):
        SegmentTarget("s3://team/burn").open("m1")


def test_a_push_of_a_daemon(home: Home, aws: str) -> None:
    furnish(home)
    env = {name: os.environ[name] for name in (*AWS, "AWS_ENDPOINT_URL")}
    assert aws == env["AWS_ENDPOINT_URL"]
    with running(home) as daemon:
        with daemon.wire() as wire:
            wire.call("flush")
        done = burnctl(home.root, "push", "s3://team/burn", env=env)
        assert done.returncode == 0, done.stderr
        assert "rows sent to s3://team/burn" in done.stdout
        assert burnctl(home.root, "push", "s3://team/burn", env=env).stdout == "nothing to send\n"
        checked = burnctl(home.root, "push", "s3://team/burn", "--check", env=env)
        assert (checked.returncode, checked.stdout) == (0, "the totals are the same there and here\n")
