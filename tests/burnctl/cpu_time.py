"""Measures the processor time that commands take."""

from __future__ import annotations

import os
import subprocess


def cpu_seconds(*commands: list[str], env: dict[str, str], times: int = 12) -> list[float]:
    """The processor time of each command, the least of several runs, taken in turns so that all meet the same machine.

    Not the time on the wall: what else the machine does is none of burnctl's business.
    """
    taken: list[list[float]] = [[] for _ in commands]
    for _ in range(times):
        for command, mine in zip(commands, taken, strict=True):
            with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process:
                _, code, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(code)
            assert process.returncode == 0
            mine.append(used.ru_utime + used.ru_stime)
    return [min(mine) for mine in taken]
