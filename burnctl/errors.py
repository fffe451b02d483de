"""The errors of burnctl, with their exit codes.

BurnctlError                    a sentence, and a hint: what to do about it          exit 1
├── UsageError                  the command line cannot be understood                exit 2
├── NotRunning                  no daemon answers at the socket                      exit 3
├── VersionMismatch             burnd speaks another version of the protocol         exit 4
├── MissingField                an answer lacks a field: burnd is of another release exit 4
└── Failed                      burnd answered with an error: code, name, sentence   exit 1,
    │                           or 2 when it could make no sense of what was asked
    └── NoAnswer                it accepted the request and did not answer           exit 1
"""

from __future__ import annotations

from burnd import protocol

OK, FAILED, USAGE, NOT_RUNNING, VERSION_MISMATCH = 0, 1, 2, 3, 4
INTERRUPTED, BROKEN_PIPE = 130, 141  # what a shell reports for SIGINT and SIGPIPE


class BurnctlError(Exception):
    """`message` is what happened, `hint` what to do; `exit_code` is that of the program."""

    exit_code = FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(f"{message}; {hint}" if hint else message)


class UsageError(BurnctlError):
    """Raised if the command line is invalid."""

    exit_code = USAGE


class NotRunning(BurnctlError):
    """Raised if no daemon listens at the socket."""

    exit_code = NOT_RUNNING

    def __init__(self, reason: str = "", hint: str = "start it with: burnctl up") -> None:
        super().__init__(f"burnd is not running: {reason}" if reason else "burnd is not running", hint)


class VersionMismatch(BurnctlError):
    """Raised if an answer has another protocol version than ours."""

    exit_code = VERSION_MISMATCH

    def __init__(self, theirs: object, ours: int) -> None:
        self.theirs, self.ours = theirs, ours
        super().__init__(
            f"burnd speaks protocol version {theirs}, this burnctl version {ours}",
            "after an upgrade, restart the daemon with: burnctl restart",
        )


class MissingField(BurnctlError, KeyError):
    """Raised if an answer lacks a field: burnd is of another release."""

    exit_code = VERSION_MISMATCH
    __str__ = Exception.__str__

    def __init__(self, field: object) -> None:
        super().__init__(f"burnd's answer has no {field!r}", "burnd is of another release; restart it: burnctl restart")


class Failed(BurnctlError):
    """Raised if burnd answered with an error; `code` and `name` are those of burnd.protocol.

    `about` is the kind of thing that is missing, if burnd names it: "session".
    """

    def __init__(self, code: int, message: str, hint: str = "", name: str = "", about: str = "") -> None:
        self.code, self.name, self.about = code, name, about
        if code == protocol.BAD_PARAMS:
            self.exit_code = USAGE
        super().__init__(message, hint)

    @property
    def is_of_another_release(self) -> bool:
        """Whether burnd lacks a method or parameter of this burnctl."""
        unknown = self.code == protocol.BAD_PARAMS and self.message.startswith("unknown parameter")
        return unknown or self.code == protocol.NO_SUCH_METHOD


class NoAnswer(Failed):
    """Raised if burnd did not answer in time, or closed the connection."""
