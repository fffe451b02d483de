"""Measures the processor time that commands take."""

from __future__ import annotations

import os
import subprocess


def cpu_seconds(*commands: list[str], env: dict[str, str], times: int = 12) -> list[float]:
    """CPU time of each command, the minimum of several runs, interleaved so that all meet the same load. Wall time
    would include the load of the machine."""
    taken: list[list[float]] = [[] for _ in commands]
    for _ in range(times):
        for command, mine in zip(commands, taken, strict=True):
            with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process:
                _, code, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(code)
            assert process.returncode == 0
            mine.append(used.ru_utime + used.ru_stime)
    return [min(mine) for mine in taken]
