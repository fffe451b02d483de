"""The made-up product as the registry lists it."""

from __future__ import annotations

from burnd.harness.product import Instructions, Product, Setting, Variable


class MadeUp(Product):
    """Logs named by their sessions, below `sessions/`."""

    source = "made-up"
    title = "Made Up"
    module = "burnd.harness.made_up.source"
    demo = "burnd.harness.made_up.demo"

    program = "madeup"
    resume = ("--continue",)
    session_variables = ("MADE_UP_SESSION",)

    variables = (Variable("MADE_UP_HOME", "where Made Up keeps its sessions; ~/.made-up is read as well"),)
    settings = (
        Setting("made-up.roots", "folders", [], "More folders to read Made Up's sessions from, beside MADE_UP_HOME."),
    )
    default_homes = ("~/.made-up",)
    log_folders = ("sessions",)

    tools = {"edit": "put_file", "shell": "do_shell", "read": "get_file"}  # noqa: RUF012
    whole_file_tools = ("put_file",)
    instructions = Instructions({"MADEUP.md": "made-up"}, {"MADEUP.md": "made-up"})
    instructions_module = "burnd.harness.made_up.instructions"


PRODUCT = MadeUp()
