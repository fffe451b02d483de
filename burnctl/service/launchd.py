"""burnd and its push as launchd agents: their property lists, and how to load, inspect and remove them."""

from __future__ import annotations

import os

from burnctl.errors import NOT_RUNNING, UsageError
from burnctl.service import managers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from burnctl.service.units import Settings

LABEL, PUSH = "dev.burnd.burnd", "dev.burnd.push"
MARK = "Written by `burnctl service install`."
_DOCTYPE_ENDS = b'PropertyList-1.0.dtd">\n'


def property_list(settings: Settings, log: str, note: str = MARK) -> str:
    """The text of an agent: its label is its file's name, it does not fork, and only a failure restarts it."""
    # launchd does not rotate logs, burnd does; only earlier output goes to launchd's file.
    command = [*settings.command, "--log-file", log]
    return _text(LABEL, command, settings.variables, f"{log}.stderr", note, nice=10, throttle_s=10)


def push_list(settings: Settings, log: str) -> str:
    """The text of an agent that pushes to a target."""
    command = [settings.command[0], "-P", "-m", "burnctl", "push", "--no-start", "--watch", *settings.push]
    variables = settings.variables | settings.push_variables
    return _text(PUSH, command, variables, log, MARK, nice=19, throttle_s=300)


def _text(
    label: str, command: list[str], variables: dict[str, str], errors: str, note: str, *, nice: int, throttle_s: int
) -> str:
    import plistlib

    environment = {"EnvironmentVariables": variables} if variables else {}
    agent = {
        "Label": label,
        "ProgramArguments": command,
        **environment,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": throttle_s,
        "ExitTimeOut": 15,
        "ProcessType": "Background",
        "LowPriorityIO": True,
        "Nice": nice,
        "Umask": 0o077,
        "SoftResourceLimits": {"Core": 0},
        "HardResourceLimits": {"Core": 0},
        "StandardErrorPath": errors,
    }
    head, doctype, rest = plistlib.dumps(agent, sort_keys=False).partition(_DOCTYPE_ENDS)
    return (head + doctype + f"<!-- {note} -->\n".encode() + rest).decode()


class Launchd:
    """The agents of the user whose environment `env` is."""

    def __init__(
        self, env: Mapping[str, str], *, hardened: bool = False, socketed: bool = False, priced: bool = False
    ) -> None:
        if hardened or socketed or priced:
            raise UsageError("--hardened, --socket and --update-prices are for systemd")
        library = os.path.join(env.get("HOME") or os.path.expanduser("~"), "Library")
        agents = os.path.join(library, "LaunchAgents")
        self._path, self._push = (os.path.join(agents, f"{label}.plist") for label in (LABEL, PUSH))
        self._log = os.path.join(library, "Logs", "burnd", "burnd.log")
        self._domain = f"gui/{os.getuid()}"
        self._target, self._push_target = (f"{self._domain}/{label}" for label in (LABEL, PUSH))

    def files(self, settings: Settings) -> dict[str, str]:
        """The files of an installation: path to text."""
        files = {self._path: property_list(settings, self._log)}
        if settings.push:
            files[self._push] = push_list(settings, os.path.join(os.path.dirname(self._log), "push.log"))
        return files

    def install(self, settings: Settings) -> list[str]:
        """Writes and loads the agents; returns lines to print."""
        files = self.files(settings)
        managers.check_ours([self._path, self._push], MARK)
        managers.check_command(settings)
        managers.make_private(settings.home)
        managers.make_private(os.path.dirname(self._log))
        lines = []
        self._remove_push()
        if self._launchctl("print", self._target).returncode == 0:
            self._launchctl("bootout", self._target)
        elif (pid := managers.stop_one_started_by_hand()) is not None:
            lines.append(f"stopped the burnd that was started by hand (pid {pid})")
        for path, target in ((self._path, self._target), (self._push, self._push_target)):
            if path in files:
                managers.write(path, files[path])
                managers.must("launchctl", "enable", target)
                managers.must("launchctl", "bootstrap", self._domain, path)
                lines.append(f"wrote {path}")
        return [*lines, "burnd is running and will be started at login"]

    def uninstall(self) -> list[str]:
        """Unloads and removes the agents; returns lines to print."""
        managers.check_ours([self._path, self._push], MARK)
        gone = self._remove_push()
        if os.path.exists(self._path):
            self._launchctl("bootout", self._target)
            gone += managers.remove([self._path], MARK)
        return [f"removed {path}" for path in gone] or ["the service is not installed"]

    def _remove_push(self) -> list[str]:
        if not os.path.exists(self._push):
            return []
        self._launchctl("bootout", self._push_target)
        return managers.remove([self._push], MARK)

    def state(self) -> dict[str, Any]:
        done = self._launchctl("print", self._target)
        facts = dict(line.strip().partition(" = ")[::2] for line in done.stdout.splitlines() if " = " in line)
        pid = facts.get("pid", "")
        return {
            "manager": "launchd",
            "unit": self._path,
            "installed": os.path.exists(self._path),
            "enabled": done.returncode == 0,
            "running": facts.get("state") == "running",
            "state": facts.get("state"),
            "pid": int(pid) if pid.isdigit() else None,
        }

    def status(self) -> int:
        state = self.state()
        if not state["installed"]:
            print("the service is not installed")
        elif state["running"]:
            print(f"{LABEL} is running (pid {state['pid']}), by {state['unit']}")
        else:
            print(f"{LABEL} is installed but not running ({state['state'] or 'not loaded'}), by {state['unit']}")
        return 0 if state["running"] else NOT_RUNNING

    def logs(self, lines: int, *, follow: bool) -> int:
        return managers.last_lines(self._log, lines, follow=follow)

    @staticmethod
    def _launchctl(*words: str) -> Any:
        return managers.call("launchctl", *words)
