"""`burnctl config`: creates, shows and changes the settings by calling `burnd`, which checks them."""

from __future__ import annotations

from burnctl import flags
from burnctl.client import Client
from burnctl.daemon_process import ask_burnd
from burnctl.errors import BurnctlError
from burnctl.output import as_json
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, table
from burnd.contract import Params, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

HELP = "creates, shows and changes the settings in config.toml; variables of the environment override them"
EXAMPLES = (
    "burnctl config init",
    "burnctl config set content.retention_days 30",
    "burnctl config get content.store",
    "burnctl config set content.store off",
    "burnctl config set claude.roots '[\"/mnt/work/.claude\"]'",
)


class SettingFlags(Params):
    key: str = param(help="the setting, such as content.store", kind="setting", metavar="KEY")
    value: str = param(help="""a word, or any TOML value: 30, true, '["a", "b"]'""", metavar="VALUE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    init = actions.add_parser("init", help="write a config.toml that shows every setting with its default")
    init.description = "writes a config.toml that shows every setting with its default and what it means"
    show = actions.add_parser("show", help="show the settings and where each is from")
    show.description = "shows the settings that a daemon started now would use, and where the running one differs"
    change = actions.add_parser("set", help="change one setting, keeping comments and every other line")
    change.description = "changes one setting in config.toml, keeping comments and every other line"
    flags.place(change, SettingFlags, "key")
    flags.place(change, SettingFlags, "value")
    get = actions.add_parser("get", help="print the value of one setting")
    get.description = "prints the value of one setting that a daemon started now would use"
    flags.place(get, SettingFlags, "key")
    edit = actions.add_parser("edit", help="open config.toml in an editor, then check it")
    edit.description = "opens config.toml in $VISUAL or $EDITOR, creates it if it is missing, and checks it"
    path = actions.add_parser("path", help="print the path of config.toml")
    path.description = "prints the path of config.toml, whether it exists or not"
    for action in (init, show, change, get, path):
        flags.add(action, flags.Output, only=("json",))
    flags.add(show, flags.Output, only=("no_color",))


def run(options: argparse.Namespace) -> int:
    import os
    import shlex
    import subprocess

    if options.action == "get":
        return _get(options)
    if options.action == "edit":
        path = ask_burnd("path")["path"]
        if not os.path.exists(path):
            ask_burnd("init")
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        try:
            code = subprocess.run([*shlex.split(editor), path], check=False).returncode
        except OSError as error:
            raise BurnctlError(f"{editor}: {error.strerror}", "set EDITOR to the editor to use") from None
        if code != 0:
            raise BurnctlError(f"{editor} ended with code {code}")
        _print_stale(ask_burnd("show")["settings"])
        return 0
    words = [options.key, options.value] if options.action == "set" else []
    answer = ask_burnd(options.action, *words)
    if options.json:
        return as_json(answer)
    if options.action == "show":
        screen = Screen.of(options)
        rows = [(setting["key"], _toml(setting["value"]), _origin(setting)) for setting in answer["settings"]]
        columns = [Column("setting", style="bold"), Column("value", least=8), Column("from", style="dim", drop=1)]
        screen.report({}, table(columns, rows, screen))
        _print_stale(answer["settings"])
        return 0
    if options.action == "set":
        before, now = _toml(answer["before"]), _toml(answer["value"])
        print(f"{answer['key']} = {now}" + (f"  (was {before})" if before != now else "  (unchanged)"))
        if answer["overruledBy"]:
            print(f"but {answer['overruledBy']} is set in this environment and overrides the file")
        if note := answer.get("note"):
            print(note)
        running = _running()
        if running is not None and running.get(answer["key"], answer["value"]) != answer["value"]:
            print("the running burnd uses it after a restart: burnctl restart")
    else:
        print(f"wrote {answer['path']}" if options.action == "init" else answer["path"])
    return 0


def _get(options: argparse.Namespace) -> int:
    """Prints a setting by its whole name or the last part of it."""
    answer = ask_burnd("show")
    settings = [one for one in answer["settings"] if f".{one['key']}".endswith(f".{options.key}")]
    if len(settings) != 1:
        from burnctl.suggestions import near

        hint = near(options.key, [one["key"] for one in answer["settings"]], "burnctl config show lists them")
        raise BurnctlError(f"there is no setting {options.key!r}", hint)
    if options.json:
        return as_json({"version": answer["version"], **settings[0]})
    value = settings[0]["value"]
    print(value if isinstance(value, str) else _toml(value))
    return 0


def _origin(setting: dict[str, Any]) -> str:
    if setting["fromEnv"]:
        return str(setting["env"])
    return "default" if setting["value"] == setting["default"] else "config.toml"


def _print_stale(settings: list[dict[str, Any]]) -> None:
    """Prints the settings whose values changed since the daemon was started."""
    running = _running()
    other = [s["key"] for s in settings if running is not None and running.get(s["key"], s["value"]) != s["value"]]
    if other:
        print(f"\nthe running burnd was started with another {', '.join(other)}; to use the new value: burnctl restart")


def _running() -> dict[str, Any] | None:
    """The settings of the running daemon, or None."""
    try:
        with Client(timeout=2) as client:
            answer = client.config_show()
    except BurnctlError:
        return None
    settings = answer.get("settings") or []
    return {setting["key"]: setting.get("value") for setting in settings}


def _toml(value: Any) -> str:
    """The value as TOML, which writes these types as JSON does."""
    import json

    return json.dumps(value, ensure_ascii=False)
