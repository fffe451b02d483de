"""The type of a registry entry: all about an agent product but how its logs are read.

burnctl imports it too, so it imports only `os`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

RESTORED = b'"restoredBy":"burnd"}'  # the end of a line that `burnctl restore` wrote: all of it is recorded
UUID = (r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", r"[0-9a-fA-F-]{1,35}")


def uuid7_ms(uuid: str | None) -> int | None:
    """The creation time in a UUID of version 7; None for any other text."""
    if uuid is None or [len(part) for part in uuid.split("-")] != [8, 4, 4, 4, 12] or uuid[14] != "7":
        return None
    try:
        return int(uuid[:8] + uuid[9:13], 16)
    except ValueError:
        return None


class Variable:
    """An environment variable of a product that burnd reads and services are given, a path as an absolute one."""

    __slots__ = ("about", "is_path", "name")

    def __init__(self, name: str, about: str, *, is_path: bool = True) -> None:
        self.name, self.about, self.is_path = name, about, is_path


class Setting:
    """A key of config.toml. `kind` is how its value is checked: "folders", "files" or "flag"."""

    __slots__ = ("about", "default", "key", "kind")

    def __init__(self, key: str, kind: str, default: Any, about: str) -> None:
        self.key, self.kind, self.default, self.about = key, kind, default, about


class Check:
    """A result of a product's own check for `burnctl doctor`; `level` is "ok", "warn" or "fail"."""

    __slots__ = ("level", "name", "remedy", "says")

    def __init__(self, name: str, level: str, says: str, remedy: str = "") -> None:
        self.name, self.level, self.says, self.remedy = name, level, says, remedy


class Copies:
    """How to recognise messages that other sessions repeat: forks, branches, agents. A copy has the original's id if
    the id matches `ids`; one with "@" is made from a position in a file. `by_time`: copies have new ids and the
    original's time. `begun_ms` gives a session's start by its id; then all older messages of a fork are copies.
    """

    __slots__ = ("begun_ms", "by_age", "by_time", "ids")

    def __init__(
        self,
        ids: str = r"\A[^@]*\Z",
        *,
        by_time: bool = False,
        begun_ms: Callable[[str], int | None] | None = None,
    ) -> None:
        self.ids, self.by_time, self.by_age = ids, by_time, begun_ms is not None
        self.begun_ms = begun_ms or (lambda _: None)


class Instructions:
    """The standing instruction files of a product.

    `project` are names in a project's folders, `own` in its configuration folders, each with its kind in answers of
    `search_memory`; a name with a final slash is a folder of Markdown files. `configs` and `own_configs` are JSON files
    that list patterns of more under `instructions`, of the kind `pattern_kind`.
    """

    __slots__ = (
        "configs",
        "follows_imports",
        "managed",
        "memory_kind",
        "own",
        "own_configs",
        "pattern_kind",
        "project",
    )

    def __init__(
        self,
        project: Mapping[str, str],
        own: Mapping[str, str],
        *,
        managed: tuple[str, ...] = (),  # folders of the machine's policy
        follows_imports: bool = False,  # whether `@path` in a file imports another one
        memory_kind: str = "",  # of notes that the product writes for itself
        configs: tuple[str, ...] = (),
        own_configs: tuple[str, ...] = (),
        pattern_kind: str = "",
    ) -> None:
        self.project, self.own, self.managed, self.follows_imports = project, own, managed, follows_imports
        self.memory_kind, self.configs, self.own_configs = memory_kind, configs, own_configs
        self.pattern_kind = pattern_kind


class Product:
    """An agent product. A harness package subclasses it and overrides what differs.

    The defaults fit a product that appends to log files below a folder in the user's home.
    """

    source: str  # its source in records, settings and filters: "claude-code"
    title: str  # its name as people write it: "Claude Code"
    module: str  # the module with `make(context)`, which returns the source; imported when it is started
    totals: str = ""  # the module with `find_logs` and `read_logs`, its quick pass for totals, if it has one
    demo: str  # the module with `write(folder, story, cwd, clock)`, which writes a demo session
    restore: str = ""  # the module with `restore(recording)`, which writes a recorded session in its own form

    program: str  # its executable
    resume: tuple[str, ...]  # the arguments before the id of the session to resume
    session_ids: tuple[str, str] = UUID  # regular expressions of whole ids and of their beginnings
    session_variables: tuple[str, ...] = ()  # variables with its session's id for programs that it starts
    logs_compactions: bool = True  # whether its logs have the response that summarised at a compaction
    has_plan: bool = False  # whether it states a plan's rate limits
    plans: Mapping[str, tuple[str, float]] = {}  # its subscriptions by name: title and dollars a month

    variables: tuple[Variable, ...] = ()  # the first one names the folder of its data
    settings: tuple[Setting, ...] = ()  # the first one lists further folders or databases
    default_homes: tuple[str, ...] = ()
    log_folders: tuple[str, ...] = ("",)  # below each of its homes
    suffix: str = ".jsonl"
    has_databases: bool = False  # whether `logs` are databases instead of folders of log files

    # Names of its tools by the kind of work they do, as `burnd.classify.tools.Kind` lists them.
    tools: Mapping[str, str] = {}
    whole_file_tools: tuple[str, ...] = ()  # editing tools that are given the whole new file
    failed_shell: str = ""  # regular expression of the beginning of a failed command's result, if it is not marked
    agent_tools: tuple[str, ...] = ()  # tools for agents that already run
    command: str = ""  # regular expression of a command logged as a prompt; its groups are name and arguments
    error_tag: str = ""  # the tag that its own errors are in
    # Texts of the harness's errors in lower case, which may be stored as titles: whole, beginnings, parts.
    errors: tuple[str, ...] = ()
    error_beginnings: tuple[str, ...] = ()
    error_parts: tuple[str, ...] = ()

    hooks_file: str = ""  # below its settings folder: JSON with hooks in Claude Code's form, if it has such
    hooks_note: str = ""  # what the user has to do before the hook runs
    plugin_file: str = ""  # the same for a plugin that is called before a tool call

    copies = Copies()
    instructions = Instructions({}, {})
    instructions_module: str = ""  # the module with `add`, which finds a folder's instruction files as the product does

    @property
    def roots_key(self) -> str:
        return self.settings[0].key

    def homes(self, environ: Mapping[str, str], user_home: str, extra: Iterable[str] = ()) -> list[str]:
        """The folders in which it may keep its data, preferred first; most do not exist."""
        names = [*self.named_homes(environ), *self.default_homes, *extra]
        return list(dict.fromkeys(absolute(name.strip(), user_home) for name in names if name.strip()))

    def named_homes(self, environ: Mapping[str, str]) -> list[str]:
        return [environ.get(variable.name, "") for variable in self.variables[:1]]

    def logs_below(self, homes: Iterable[str]) -> list[str]:
        below = [os.path.join(home, name) if name else home for home in homes for name in self.log_folders]
        return list(dict.fromkeys(below))

    def logs(self, environ: Mapping[str, str], user_home: str, extra: Iterable[str] = ()) -> list[str]:
        """The folders in which its logs may be, or its databases; `extra` comes from settings and clients."""
        return self.logs_below(self.homes(environ, user_home, extra))

    def config_homes(self, environ: Mapping[str, str], user_home: str, extra: Iterable[str] = ()) -> list[str]:
        return self.homes(environ, user_home, extra)

    def memory_folders(self, homes: Iterable[str], projects: Iterable[str]) -> Iterator[tuple[str, str | None]]:  # noqa: ARG002
        """The folders of notes that the product writes for itself, each with its project."""
        yield from ()

    def clean_up_days(self, homes: Iterable[str]) -> float | None:  # noqa: ARG002
        return None

    def checks(self, homes: Iterable[str]) -> Iterator[Check]:  # noqa: ARG002
        yield from ()


def absolute(name: str, user_home: str) -> str:
    """The absolute path of a setting or variable; `~` and relative paths start at the user's home."""
    if name == "~" or name.startswith("~/"):
        name = user_home + name[1:]
    return os.path.join(user_home, name)
