"""Codex as the registry lists it, and the instruction files that its sessions begin with."""

from __future__ import annotations

import os

from burnd.harness.product import Copies, Instructions, Product, Setting, Variable, uuid7_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from burnd.harness.instructions import InstructionFiles

NAMES = ("AGENTS.override.md", "AGENTS.md")


class Codex(Product):
    """Rollouts below `sessions/` and `archived_sessions/`."""

    source = "codex"
    title = "Codex"
    module = "burnd.harness.codex.source"
    totals = "burnd.harness.codex.totals"
    demo = "burnd.harness.codex.demo"
    restore = "burnd.harness.codex.restore"

    program = "codex"
    resume = ("resume",)
    # Lines of old releases have no ids; newer ones have their task's id, also in copies.
    copies = Copies(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", begun_ms=uuid7_ms)
    has_plan = True
    plans = {  # noqa: RUF012
        "plus": ("ChatGPT Plus", 20),
        "chatgpt-pro": ("ChatGPT Pro", 200),
    }

    variables = (
        Variable(
            "CODEX_HOME",
            "where Codex keeps its sessions, in sessions/ and archived_sessions/; ~/.codex is read as well",
        ),
    )
    settings = (
        Setting(
            "codex.roots", "folders", [], "More folders to read Codex's sessions from, beside CODEX_HOME and ~/.codex."
        ),
    )
    default_homes = ("~/.codex",)
    log_folders = ("sessions", "archived_sessions")

    tools = {  # noqa: RUF012
        "edit": "apply_patch write_file",
        "shell": "exec_command shell shell_command local_shell exec",
        "delegate": "spawn_agent",
        # Codex has no plan mode to leave; it plans by stating the plan.
        "plan_exit": "update_plan",
        "read": "read_file view_image",
        "search": "grep_files list_dir",
        "web": "web_search",
    }
    whole_file_tools = ("write_file",)
    instructions = Instructions(dict.fromkeys(NAMES, "agents-md"), dict.fromkeys(NAMES, "agents-md"))
    instructions_module = "burnd.harness.codex.product"
    hooks_file = "hooks.json"
    hooks_note = "Codex runs the hook once you trust it, at its next start"
    agent_tools = ("send_input", "wait_agent", "close_agent", "resume_agent")


def add(
    files: InstructionFiles, folder: str, _inner: Iterable[tuple[str, set[str]]], environ: Mapping[str, str]
) -> None:
    """Adds the user's file, then one of each folder from the repository's root down, or of this folder only."""
    from burnd.harness.instructions import in_repository  # noqa: PLC0415 - burnctl imports this module at every start

    home = environ.get("CODEX_HOME") or os.path.join(os.path.expanduser("~"), ".codex")
    folders = in_repository(folder) or [os.path.abspath(folder)]
    for parent, how in ((home, "global"), *((one, "project") for one in folders)):
        files.add_first([os.path.join(parent, name) for name in NAMES], how)


PRODUCT = Codex()
