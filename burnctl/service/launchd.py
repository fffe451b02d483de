"""burnd as a launchd agent: its property list, and loading, looking at and removing it."""

from __future__ import annotations

import os

from burnctl.errors import NOT_RUNNING, UsageError
from burnctl.service import managers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from burnctl.service.settings import Settings

LABEL = "dev.burnd.burnd"
MARK = "Written by `burnctl service install`."
_DOCTYPE_ENDS = b'PropertyList-1.0.dtd">\n'


def property_list(settings: Settings, log: str, note: str = MARK) -> str:
    """The agent's text: its label is its file's name, it does not fork, and only a failure starts it again."""
    import plistlib

    environment = {"EnvironmentVariables": settings.variables} if settings.variables else {}
    agent = {
        "Label": LABEL,
        # launchd does not rotate logs, burnd does; only output before burnd has its log goes to launchd's file.
        "ProgramArguments": [*settings.command, "--log-file", log],
        **environment,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 15,
        "ProcessType": "Background",
        "LowPriorityIO": True,
        "Nice": 10,
        "Umask": 0o077,
        "SoftResourceLimits": {"Core": 0},
        "HardResourceLimits": {"Core": 0},
        "StandardErrorPath": f"{log}.stderr",
    }
    head, doctype, rest = plistlib.dumps(agent, sort_keys=False).partition(_DOCTYPE_ENDS)
    return (head + doctype + f"<!-- {note} -->\n".encode() + rest).decode()


class Launchd:
    """The agent of the person whose environment `env` is."""

    def __init__(
        self, env: Mapping[str, str], *, hardened: bool = False, socketed: bool = False, priced: bool = False
    ) -> None:
        if hardened or socketed or priced:
            raise UsageError("--hardened, --socket and --update-prices are for systemd")
        library = os.path.join(env.get("HOME") or os.path.expanduser("~"), "Library")
        self._path = os.path.join(library, "LaunchAgents", f"{LABEL}.plist")
        self._log = os.path.join(library, "Logs", "burnd", "burnd.log")
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"

    def files(self, settings: Settings) -> dict[str, str]:
        """What an installation consists of: path to text."""
        if settings.push:
            raise UsageError("--push is for systemd", "run burnctl push --watch from an agent of your own")
        return {self._path: property_list(settings, self._log)}

    def install(self, settings: Settings) -> list[str]:
        """Writes and loads the agent; returns lines to print."""
        files = self.files(settings)
        managers.check_ours([self._path], MARK)
        managers.check_command(settings)
        managers.make_private(settings.home)
        managers.make_private(os.path.dirname(self._log))
        lines = []
        if self._launchctl("print", self._target).returncode == 0:
            self._launchctl("bootout", self._target)
        elif (pid := managers.stop_one_started_by_hand()) is not None:
            lines.append(f"stopped the burnd that was started by hand (pid {pid})")
        managers.write(self._path, files[self._path])
        managers.must("launchctl", "enable", self._target)
        managers.must("launchctl", "bootstrap", self._domain, self._path)
        return [*lines, f"wrote {self._path}", "burnd is running and will be started at login"]

    def uninstall(self) -> list[str]:
        """Unloads it and removes what install wrote; returns lines to print."""
        managers.check_ours([self._path], MARK)
        if not os.path.exists(self._path):
            return ["the service is not installed"]
        self._launchctl("bootout", self._target)
        return [f"removed {gone}" for gone in managers.remove([self._path], MARK)]

    def state(self) -> dict[str, Any]:
        """The state of the agent, for programs."""
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
        """A line about the agent; launchd's own words fill pages."""
        state = self.state()
        if not state["installed"]:
            print("the service is not installed")
        elif state["running"]:
            print(f"{LABEL} is running (pid {state['pid']}), by {state['unit']}")
        else:
            print(f"{LABEL} is installed but not running ({state['state'] or 'not loaded'}), by {state['unit']}")
        return 0 if state["running"] else NOT_RUNNING

    def logs(self, lines: int, *, follow: bool) -> int:
        """The end of the agent's log."""
        return managers.last_lines(self._log, lines, follow=follow)

    @staticmethod
    def _launchctl(*words: str) -> Any:
        return managers.call("launchctl", *words)
