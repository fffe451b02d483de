"""Every family of shell commands, and every word that a verb may hold."""

from __future__ import annotations

from burnd.classify import shell_runners
from burnd.classify.shell_programs import (
    BUILD_DEPLOY,
    DEPS,
    FLAGGED,
    FORMAT,
    GIT,
    REVIEW,
    SUBCOMMANDS,
    TESTING,
    VERIFICATION,
)

FAMILIES = (TESTING, REVIEW, GIT, DEPS, FORMAT, VERIFICATION, BUILD_DEPLOY)
VERB_WORDS = frozenset(
    {
        "test",
        shell_runners.UNKNOWN_GOAL,
        *shell_runners._SCRIPTS,
        *shell_runners._PACKAGE_COMMANDS,
        *shell_runners._MAKE_GOALS,
        *shell_runners._JVM_GOALS,
        *(word for phrases in SUBCOMMANDS.values() for phrase in phrases for word in phrase.split()),
        *(choice.flag for rule in FLAGGED.values() for choice in rule.choices),
    }
)
