"""Sets the made-up machine up in a folder of its own: its logs, its home, the environment that points there."""

from __future__ import annotations

import os

from burnctl.demo import claude_log, codex_log, opencode_db
from burnctl.demo.instructions import instructions
from burnctl.demo.stories import Story, stories

_ELSEWHERE = ("OPENCODE_DB", "BURND_SOCKET", "RELAYBURN_CONTENT_STORE", "RELAYBURN_CONTENT_TTL_DAYS")


class Machine:
    """Everything is below `folder`; nothing of the person's own is read or written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.claude = os.path.join(folder, "claude")
        self.codex = os.path.join(folder, "codex")
        self.share = os.path.join(folder, "share")
        self.environment = {
            "HOME": os.path.join(folder, "you"),
            "RELAYBURN_HOME": os.path.join(folder, "relayburn"),
            "CLAUDE_CONFIG_DIR": self.claude,
            "CODEX_HOME": self.codex,
            "XDG_DATA_HOME": self.share,
            "XDG_CONFIG_HOME": os.path.join(folder, "config"),
        }

    def enter(self) -> None:
        """From now on this process, and all that it starts, lives there."""
        os.environ.update(self.environment)
        for name in _ELSEWHERE:
            os.environ.pop(name, None)

    def write_logs(self, now: float) -> dict[str, Story]:
        """The sessions of the last days, by their ids, and the instructions they began with."""
        self._write_instructions()
        written = {}
        for story in stories():
            begun = now - story.ago_h * 3600
            if story.harness == "opencode":
                path = os.path.join(self.share, "opencode", "opencode.db")
                session_id = opencode_db.write(path, story, self._cwd(story.project), begun)
            elif story.harness == "codex":
                session_id = codex_log.write(self.codex, story, self._cwd(story.project), begun)
            else:
                log = self.transcript(story.project, story.branch, story.model, begun, story.title)
                log.begin_with(story.more_prefix)
                log.play(story.acts, story.title)
                session_id = log.session_id
            written[session_id] = story
        return written

    def transcript(self, project: str, branch: str, model: str, clock: float, seed: str) -> claude_log.ClaudeLog:
        """A session of Claude Code that can be made to grow."""
        cwd = self._cwd(project)
        folder = os.path.join(self.claude, "projects", claude_log.slug(cwd))
        return claude_log.ClaudeLog(folder, cwd, branch, model, clock, seed)

    def _write_instructions(self) -> None:
        for place, text in instructions().items():
            path = os.path.join(self.folder, place)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def _cwd(self, project: str) -> str:
        return os.path.join(self.folder, "you", project)
