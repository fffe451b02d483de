"""Starts real databases for tests: Postgres from the system's packages, ClickHouse's engine from chdb."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from burnctl.push.clickhouse import ClickHouseTarget
from burnctl.push.target import Target
from tests.real.clickhouse_server import PASSWORD, USER
from tests.server.wire import until

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def clickhouse() -> Iterator[str]:
    """The URL of a server."""
    with tempfile.TemporaryDirectory(prefix="burnd-ch-", dir="/tmp") as folder:
        command = [sys.executable, "-m", "tests.real.clickhouse_server", folder]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        ) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            port = server.stdout.readline().strip()
            assert port, "chdb does not start: make test-real installs it"
            yield f"clickhouse://127.0.0.1:{port}"
            server.stdin.close()


@contextlib.contextmanager
def postgres(certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """The URL of a server that trusts every connection, with TLS if it has a certificate.

    Postgres does not run as root.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert found, "Postgres is not installed: make test-real installs it"
    programs, as_user = found[-1].parent, ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    folder = tempfile.mkdtemp(prefix="burnd-pg-", dir="/tmp")
    if as_user:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = f"{folder}/data"

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, stdout=subprocess.DEVNULL, cwd="/tmp")

    control = (str(programs / "pg_ctl"), "-D", data, "-w")
    try:
        run(str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "postgres")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1,127.0.0.2 -c fsync=off"
        if certificate is not None:
            for path, name in zip(certificate, ("server.crt", "server.key"), strict=True):
                shutil.copy(path, f"{data}/{name}")
                os.chmod(f"{data}/{name}", 0o600)
                if as_user:
                    shutil.chown(f"{data}/{name}", "postgres")
            options += " -c ssl=on"
        run(*control, "-l", f"{folder}/log", "-o", options, "start")
        yield f"postgres://postgres@127.0.0.1:{port}/postgres"
        run(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def target_of(url: str) -> Target:
    if url.startswith("clickhouse"):
        return ClickHouseTarget.at(url, USER, PASSWORD)
    from burnctl.push.postgres import PostgresTarget

    return PostgresTarget.at(url)


@contextlib.contextmanager
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an S3 bucket in a process of moto."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = shutil.which("moto_server")
    assert program, "moto is not installed: make test-real installs it"
    server = subprocess.Popen([program, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        until(lambda: _makes_bucket(port))
        yield "s3://fleet/burn"
    finally:
        server.kill()
        server.wait()


def _makes_bucket(port: int) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/fleet", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def connect_postgres(url: str, **options: Any) -> Any:
    """A connection of psycopg, which only `make test-real` installs."""
    return import_module("psycopg").connect(url, **options)
