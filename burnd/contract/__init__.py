"""The methods of the socket, each declared once: its name, its parameters, its answer and its errors.

A method is a class in `reports`, `sessions` or `daemon`. The daemon checks requests with it; burnctl makes its flags,
the Python client and completions from it; MCP tools, the manual and the tables in docs/ are made from it, too. burnctl
imports it at every start, so it imports nothing.

    class FlowParams(Params, method="flow", errors=("not_found",), partial=True):
        \"\"\"Shows how a session went: its rails as lanes of steps.\"\"\"

        session: str = param(help="a session's id, or the beginning of one", kind="session", kw_only=False)
        limit: int = param(default=400, help="number of steps", least=1, most=2000)

Annotations are read as text by burnctl, and evaluated by `burnd.contract.validation`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, dataclass_transform
else:

    def dataclass_transform(**_facts):
        return lambda made: made


DEADLINE_S = 10.0
LONG_S = 600.0  # for methods that may read or write everything
_REQUIRED = object()


class Param:
    """A parameter: its name and type, its help and its flag.

    `kind` is the meaning of a text or number: a time, a project, a session. Flags are parsed and completed by it.
    `choices` are the only values, unless `others` names what else is possible, such as `tag:KEY`. A number below
    `least` or above `most` is an error, or if it is `clamped` means the nearest one. `flag` is the name on the command
    line, empty without a flag.
    """

    __slots__ = (
        *("choices", "clamped", "default", "flag", "help", "is_required", "kind", "least", "metavar", "most"),
        *("name", "others", "type", "wire"),
    )

    name: str
    wire: str
    type: str

    def __init__(
        self,
        default: object,
        help: str,  # noqa: A002 - argparse's own name for it
        *,
        kind: str = "",
        choices: tuple[str, ...] = (),
        others: str = "",
        least: float | None = None,
        most: float | None = None,
        clamped: bool = False,
        flag: str | None = None,
        metavar: str = "",
    ) -> None:
        self.default, self.help, self.kind, self.metavar = default, help, kind, metavar
        self.is_required = default is _REQUIRED
        self.choices, self.others, self.least, self.most = choices, others, least, most
        self.clamped, self.flag = clamped, flag
        if least is None and kind == "count":
            self.least = 1

    def named(self, name: str, type_: str) -> Param:
        self.name, self.type, self.wire = name, type_, camel(name)
        if self.flag is None:
            self.flag = f"--{name.replace('_', '-')}"
        return self


def param(
    *,
    help: str,  # noqa: A002
    default: Any = _REQUIRED,
    kw_only: bool = True,  # noqa: ARG001 - for type checkers: whether the client takes it by position
    **facts: Any,
) -> Any:
    """Declares a parameter; one without a default is required."""
    return Param(default, help, **facts)


METHODS: dict[str, type[Params]] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(param,))
class Params:
    """The parameters of a method, and what else there is to say about it.

    `method` is its name, `errors` are those that only some methods have, `deadline` is how long it may take (None: for
    as long as the client waits), `partial` answers carry `backfill`, and `progress` is notified where there is any.
    `answer` is the type of the answer. `of_totals` are the parameters that totals alone can answer.
    """

    answer: ClassVar[Any]
    method: ClassVar[str] = ""
    errors: ClassVar[tuple[str, ...]] = ()
    deadline: ClassVar[float | None] = DEADLINE_S
    partial: ClassVar[bool] = False
    progress: ClassVar[bool] = False
    of_totals: ClassVar[tuple[str, ...]] = ()
    params: ClassVar[dict[str, Param]] = {}

    @property
    def is_of_totals(self) -> bool:
        """Whether totals alone answer it, so that it is exact before all old logs are read."""
        return bool(self.of_totals) and not self.beyond_totals()

    def beyond_totals(self) -> list[str]:
        """The given parameters that totals cannot answer: all that `of_totals` does not name."""
        return [name for name in self.params if name not in self.of_totals and getattr(self, name)]

    def __init_subclass__(
        cls,
        method: str = "",
        errors: tuple[str, ...] = (),
        deadline: float | None = DEADLINE_S,
        *,
        partial: bool = False,
        progress: bool = False,
    ) -> None:
        types = cls.__annotations__ if "__annotations__" in vars(cls) else {}
        own = {name: value.named(name, types[name]) for name, value in vars(cls).items() if isinstance(value, Param)}
        cls.params = {**cls.params, **own}
        cls.method, cls.errors, cls.deadline, cls.partial, cls.progress = method, errors, deadline, partial, progress
        for name, value in own.items():
            setattr(cls, name, value.default)
        if method:
            METHODS[method] = cls

    if not TYPE_CHECKING:  # type checkers make it from the parameters

        def __init__(self, **given):
            for name in given.keys() - self.params.keys():
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}")
            for name, one in self.params.items():
                if one.is_required and name not in given:
                    raise TypeError(f"{type(self).__name__} lacks {name!r}")
            self.__dict__.update(given)

    @classmethod
    def about(cls) -> str:
        return (cls.__doc__ or "").strip().partition("\n\n")[0].replace("\n    ", " ")


def camel(name: str) -> str:
    """The name of a parameter on the wire."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def methods() -> dict[str, type[Params]]:
    """Every method by its name, in the order of docs/protocol.md."""
    from burnd.contract import daemon, reports, sessions  # noqa: F401, PLC0415 - they add themselves

    return METHODS
