"""`burnctl service`: has systemd or launchd start burnd at login, and removes that."""

from __future__ import annotations

import os
import sys

from burnctl import flags
from burnctl.errors import BurnctlError
from burnctl.output import as_json
from burnd.contract import Params, param
from burnd.paths import working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


HELP = "starts burnd at login and keeps it running, with systemd on Linux and launchd on macOS"
EXAMPLES = (
    "burnctl service install",
    "RELAYBURN_HOME=/data/burn burnctl service install --hardened",
    "burnctl service install --print",
    "burnctl service install --push clickhouses://ch.example.com/burn --credentials ~/.burn-push",
    "burnctl service logs --follow",
)


class ServiceFlags(Params):
    print: bool = param(default=False, help="only print what would be written, and where")
    hardened: bool = param(default=False, help="systemd: also what needs user namespaces")
    socket: bool = param(default=False, help="systemd: also create the socket")
    update_prices: bool = param(default=False, help="systemd: also fetch the newest prices once a week")
    push: str | None = param(default=None, help="also push to this target, see burnctl push", metavar="TARGET")
    credentials: str | None = param(
        default=None, help="with --push: file with user and password, mode 0600", metavar="FILE"
    )
    without_project: list[str] = param(
        default=[], help="with --push: leave a project out; may be repeated", kind="projects", metavar="PROJECT"
    )
    content: bool = param(default=False, help="with --push: also send conversations")
    machine: str | None = param(default=None, help="with --push: a name for this machine", metavar="NAME")
    user: str | None = param(default=None, help="with --push: a name for the user", metavar="NAME")
    lines: int = param(default=100, help="number of lines", kind="count", most=10_000, flag="-n --lines")
    follow: bool = param(default=False, help="follow the log as it grows", flag="-f --follow")
    manager: str | None = param(default=None, help="service manager (this system's)", choices=("systemd", "launchd"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser("install", help="write the unit or agent, enable it and start it")
    install.description = (
        "writes the unit or agent, enables it and starts it. A service does not see your shell's variables: those that "
        "burnd knows are written into it as they are now"
    )
    flags.add(install, ServiceFlags, skip=("lines", "follow", "manager"))
    uninstall = actions.add_parser("uninstall", help="stop it and remove what install wrote")
    uninstall.description = "stops it and removes what install wrote, and nothing else; what was recorded stays"
    status = actions.add_parser("status", help="show the state of the service")
    status.description = "shows the state of the service; exit code 3 if it does not run"
    flags.add(status, flags.Output, only=("json",))
    logs = actions.add_parser("logs", help="show the daemon's log")
    logs.description = "shows the daemon's log, from the journal or from its file"
    flags.add(logs, ServiceFlags, only=("lines", "follow"))
    logs.set_defaults(lines=100)
    for action in (install, uninstall, status, logs):
        flags.add(action, ServiceFlags, only=("manager",))


def run(options: argparse.Namespace) -> int:
    from burnctl.service.managers import of_this_system

    parts = {"hardened": "hardened", "socketed": "socket", "priced": "update_prices"}
    manager = of_this_system(options.manager, **{part: getattr(options, flag, False) for part, flag in parts.items()})
    if options.action == "install":
        from burnctl.service.units import PUSH_VARIABLES, Settings, command_of, variables_in
        from burnd.paths import home_folder, socket_file

        push = _push(options)
        try:
            home = home_folder()
            socket = socket_file(home)
        except ValueError as error:
            raise BurnctlError(str(error)) from None
        variables = variables_in(os.environ, working_folder() or "/")
        own = {name: value for name in PUSH_VARIABLES if push and (value := os.environ.get(name))}
        settings = Settings(variables, command_of(sys.executable), home, os.path.abspath(socket), push, own)
        if options.print:
            lines = [f"# {path}\n{text}" for path, text in manager.files(settings).items()]
        else:
            lines = manager.install(settings)
        print("\n".join(lines))
        return 0
    if options.action == "uninstall":
        print("\n".join(manager.uninstall()))
        return 0
    if options.action == "logs":
        return manager.logs(options.lines, follow=options.follow)
    if options.json:
        from burnd import protocol

        return as_json({"version": protocol.VERSION, **manager.state()})
    return manager.status()


def _push(options: argparse.Namespace) -> list[str]:
    """The arguments of `burnctl push` in a unit. Raises UsageError for a password."""
    if options.push is None:
        return []
    from burnctl.push.engine import check_url, read_credentials
    from burnctl.push.state import absolute

    check_url(options.push)
    words = [absolute(options.push)]
    if options.credentials is not None:
        read_credentials(options.credentials)
        words += ["--credentials", os.path.abspath(os.path.expanduser(options.credentials))]
    for project in options.without_project:
        words += ["--without-project", project]
    for flag, name in (("--machine", options.machine), ("--user", options.user)):
        if name is not None:
            words += [flag, name]
    return [*words, "--content"] if options.content else words
