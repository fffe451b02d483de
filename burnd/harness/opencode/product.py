"""opencode as the registry lists it, and where it keeps its databases."""

from __future__ import annotations

import os
import stat

from burnd.harness.product import Copies, Instructions, Product, Setting, Variable, absolute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TOOL_OUTPUTS = "tool-output"
_PREFIX, _SUFFIX = "opencode", ".db"
_IN_MEMORY = ":memory:"
CONFIGURATIONS = ("opencode.json", "opencode.jsonc")


class OpenCode(Product):
    """A database for each of its release channels, in one folder."""

    source = "opencode"
    title = "opencode"
    module = "burnd.harness.opencode.source"
    totals = "burnd.harness.opencode.totals"
    demo = "burnd.harness.opencode.demo"
    restore = "burnd.harness.opencode.restore"

    program = "opencode"
    resume = ("--session",)
    copies = Copies(by_time=True)
    session_ids = (r"ses_[0-9A-Za-z]{26}", r"ses_[0-9A-Za-z]{0,25}")
    session_variables = ("OPENCODE_SESSION_ID",)

    variables = (
        Variable(
            "XDG_DATA_HOME",
            "opencode's databases are in opencode/ below it, ~/.local/share unless set: opencode.db, and "
            "opencode-<channel>.db of other builds",
        ),
        Variable(
            "OPENCODE_DB",
            "a database of opencode's own choosing: a path, or a name in that folder; those in the folder are read as "
            "well",
            is_path=False,
        ),
    )
    settings = (
        Setting(
            "opencode.databases",
            "files",
            [],
            "More of opencode's databases to read, beside OPENCODE_DB and those in its own folder.",
        ),
        Setting(
            "opencode.include",
            "folders",
            [],
            "The projects of opencode's to read: folders, with all below them, or patterns such as ~/work/*.\n"
            "Empty is all of them.",
        ),
        Setting("opencode.exclude", "folders", [], "The projects of opencode's not to read, whatever includes them."),
        Setting("opencode.archived", "flag", True, "Whether sessions that were archived in opencode are read."),
        Setting(
            "opencode.reasoning",
            "flag",
            True,
            "Whether the text of a model's reasoning is kept with the rest of a conversation.",
        ),
        Setting(
            "opencode.include_tool_outputs",
            "flag",
            False,
            "Whether outputs too long for opencode's database are taken from the files it keeps them in for a week.",
        ),
    )
    has_databases = True

    tools = {  # noqa: RUF012
        "edit": "edit write multiedit patch",
        "shell": "bash",
        "delegate": "task",
        "plan_exit": "plan_exit",
        "read": "read",
        "search": "grep glob list lsp codesearch",
        "web": "webfetch websearch",
        "todo": "todowrite todoread",
        "skill": "skill",
    }
    whole_file_tools = ("write",)
    instructions = Instructions(
        {"AGENTS.md": "agents-md", "CONTEXT.md": "opencode"},
        {"AGENTS.md": "agents-md"},
        configs=(*CONFIGURATIONS, *(f".opencode/{name}" for name in CONFIGURATIONS)),
        own_configs=("config.json", *CONFIGURATIONS),
        pattern_kind="opencode",
    )
    instructions_module = "burnd.harness.opencode.instructions"
    plugin_file = os.path.join("plugin", "burnd-guard.js")

    def logs(self, environ: Mapping[str, str], user_home: str, extra: Iterable[str] = ()) -> list[str]:
        """Its databases, or the expected paths if none exists."""
        folder, databases = data_folder(environ, user_home), named_databases(environ, user_home, extra)
        return present_databases([folder], databases) or [*databases, folder]

    def config_homes(self, environ: Mapping[str, str], user_home: str, extra: Iterable[str] = ()) -> list[str]:  # noqa: ARG002
        return list(filter(os.path.isabs, config_folders(environ, user_home)))


def config_folders(environ: Mapping[str, str], user_home: str) -> list[str]:
    """The folders of its settings; the one named by the environment first."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(user_home, ".config")
    return [folder for folder in (environ.get("OPENCODE_CONFIG_DIR"), os.path.join(base, "opencode")) if folder]


def data_folder(environ: Mapping[str, str], user_home: str) -> str:
    base = environ.get("XDG_DATA_HOME") or os.path.join(user_home, ".local", "share")
    return os.path.join(user_home, base, "opencode")


def named_databases(environ: Mapping[str, str], user_home: str, extra: Iterable[str] = ()) -> list[str]:
    """The databases that OPENCODE_DB and the settings name, without `:memory:`."""
    folder = data_folder(environ, user_home)
    name = environ.get("OPENCODE_DB", "")
    databases = [] if name in ("", _IN_MEMORY) else [os.path.join(folder, name)]
    return databases + [absolute(path, user_home) for path in extra]


def announced_places(roots: Iterable[str]) -> tuple[list[str], list[str]]:
    """The folders and databases that a client may mean by a root: a database, its folder, or XDG_DATA_HOME."""
    databases = list(roots)
    return [folder for root in databases for folder in (root, os.path.join(root, "opencode"))], databases


def present_databases(folders: Iterable[str], databases: Iterable[str]) -> list[str]:
    """The databases that exist, each once under any names, preferred first."""
    paths: dict[tuple[int, int], str] = {}
    for path in (*databases, *(path for folder in folders for path in _channels(folder))):
        try:
            facts = os.stat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(facts.st_mode):
            paths.setdefault((facts.st_dev, facts.st_ino), path)
    return list(paths.values())


def _channels(folder: str) -> list[str]:
    """The databases of all release channels in a folder, the usual one first."""
    try:
        names = os.listdir(folder)
    except (OSError, ValueError):
        return []
    usual = _PREFIX + _SUFFIX
    channels = [name for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]
    return [os.path.join(folder, name) for name in sorted(channels, key=lambda name: (name != usual, name))]


PRODUCT = OpenCode()
