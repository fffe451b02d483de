"""The options of reading."""

from __future__ import annotations

from pathlib import Path

from burnd.harness.opencode.reader import ReadOptions, read_options
from burnd.paths import Home
from burnd.settings.config import load


def test_the_settings_say_what_to_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.write_text(
        '[opencode]\ninclude = ["~/work", "/srv/*"]\nexclude = ["~/work/secret/"]\narchived = false\n'
        "reasoning = false\ninclude_tool_outputs = true\n"
    )
    assert read_options(load(home, {}), "/home/u") == ReadOptions(
        include=("/home/u/work", "/srv/*"),
        exclude=("/home/u/work/secret",),
        archived=False,
        reasoning=False,
        tool_outputs=True,
    )
    assert read_options(load(Home(tmp_path / "other"), {}), "/home/u") == ReadOptions()
