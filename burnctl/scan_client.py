"""Reports from the logs alone (`--scan`): a separate burnd reads them, answers and writes nothing."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

from burnctl.client import Client
from burnctl.connection import result_of
from burnctl.daemon import say
from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class ScanClient(Client):
    """A client answered without a daemon, by one pass over the logs; only for totals."""

    _scan: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        if self._scan is not None:
            self._scan.communicate()
            self._scan = None

    def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        if self._scan is None:
            from burnctl.daemon_process import burnd_command

            pipe = subprocess.PIPE
            self._scan = subprocess.Popen([*burnd_command(), "scan"], stdin=pipe, stdout=pipe, stderr=pipe)
            if sys.stdout.isatty():
                say("reading all logs ...")
        request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
        assert self._scan.stdin is not None  # noqa: S101 - both are pipes
        assert self._scan.stdout is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):  # it has ended: its stderr has the reason
            self._scan.stdin.write(f"{request}\n".encode())
            self._scan.stdin.flush()
        answer = self._scan.stdout.readline()
        if not answer:
            words = self._scan.communicate()[1].decode("utf-8", "replace").strip().splitlines()
            raise BurnctlError(words[-1] if words else f"burnd scan ended with code {self._scan.returncode}")
        return result_of(json.loads(answer))
