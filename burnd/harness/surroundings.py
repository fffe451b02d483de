"""What a source is made from, and what the registry knows of a harness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from burnd.recording.pipeline import Pipeline
from burnd.recording.source import Source
from burnd.settings.config import Settings


class Surroundings(NamedTuple):
    """What a source is made from: where its records go, and all that may say where it finds them."""

    pipeline: Pipeline
    settings: Settings
    environ: Mapping[str, str]
    user_home: str
    announced: Sequence[str] = ()  # folders that clients told of, as the harness itself is told them


Make = Callable[[Surroundings], Source]
Look = Callable[[Settings, Mapping[str, str], str], Sequence[str]]


class Harness(NamedTuple):
    """How to make a harness's source, and where it would look on this machine, for `burnd check`."""

    make: Make
    places: Look
