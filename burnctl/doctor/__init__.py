"""Checks of what burnd depends on: each has a level, a sentence and a remedy."""

from __future__ import annotations

OK, WARN, FAIL = "ok", "warn", "fail"


class CheckResult:
    """A line of the report. `remedy` is empty if there is nothing to do."""

    __slots__ = ("level", "name", "remedy", "says")

    def __init__(self, name: str, level: str, says: str, remedy: str = "") -> None:
        self.name, self.level, self.says, self.remedy = name, level, says, remedy

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "level": self.level, "says": self.says, "remedy": self.remedy}


def ok(name: str, says: str, remedy: str = "") -> CheckResult:
    return CheckResult(name, OK, says, remedy)


def warn(name: str, says: str, remedy: str = "") -> CheckResult:
    return CheckResult(name, WARN, says, remedy)


def fail(name: str, says: str, remedy: str = "") -> CheckResult:
    return CheckResult(name, FAIL, says, remedy)
