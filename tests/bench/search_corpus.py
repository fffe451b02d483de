"""Made-up conversations to search in, the same for every run: everyday words, code, and sessions with a subject."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import NamedTuple

from burnd.records import Content
from tests.make import at, text, tool_result, tool_use

PER_SESSION = 100

# A word, another word for it, and a slip of the fingers.
SLIPS = [
    line.split()
    for line in """
    refactor restructure refcator
    scheduler planner schduler
    migration upgrade migraton
    timeout delay timout
    database storage databse
    password credential pasword
    invoice bill invocie
    customer client custmer
    deployment rollout deploymnet
    container sandbox contianer
    pipeline workflow pipleine
    benchmark measurement benchmrak
    encoding charset encodng
    compiler translator compilr
    websocket streaming websokcet
    retry repeat rety
    cache buffer cahce
    index catalogue indxe
    queue backlog qeue
    thread worker thraed
    memory heap memroy
    leak growth leka
    certificate key certifcate
    proxy gateway prxoy
    login signin lgoin
    session visit sesion
    cookie token coockie
    template layout templte
    stylesheet theme stylesheeet
    button control buton
    keyboard shortcut keybaord
    translation locale transaltion
    calendar agenda calender
    reminder alert remidner
    payment checkout paymnet
    currency money curency
    warehouse depot warehosue
    shipment delivery shipmnet
    inventory stock inventroy
    recommendation suggestion recomendation
    notification message notificaton
    permission right permision
    administrator owner adminstrator
    dashboard overview dashbaord
    histogram chart histgram
    regression breakage regresion
    snapshot copy snapshto
    rollback undo rolback
    concurrency parallelism concurency
    deadlock hang deadlcok
    checksum hash chekcsum
    parser reader parsre
    grammar syntax grammer
    tokenizer splitter tokeniser
    embedding vector embeding
    classifier labeller clasifier
    telemetry tracking telemtry
    sensor probe sesnor
    firmware image firmwre
    bluetooth radio bluetoth
    """.strip().splitlines()
]
SUBJECTS = [word for word, _, _ in SLIPS]
_COMMON = (
    "the of to and a in is it you that for on are with as be at one have this from or by not but what some we can out "
    "there when up use how each which do time if will about then them write would like so these make see has look more "
    "could go did number no most my over know than call first who may been now find any new work part take get place "
    "after back only every good give our under function return import self class def const async await error test file "
    "path line code data value type string int list dict set query session model request response user server config "
    "build run install package module node python update delete create read write check fix issue branch commit merge "
    "diff patch lint format debug trace log warn process stream channel event handler result option none true false "
    "assert schema table column row insert select join order limit offset transaction docker network port host route"
)
_SYLLABLES = "ba be bi bo ca ce co da de di do fa fe fi ga go ha he ka ki la le li lo ma me mi mo na ne no pa pe po"
_SYLLABLES += " ra re ri ro sa se si so ta te ti to tra tri stra pla kro vi vo wa we za zo qui sho chi the dra fle gru"


class Query(NamedTuple):
    """A query of words remembered from a session."""

    words: str
    session_id: str


class Corpus:
    """Words by Zipf's law, drawn once into phrases, from which every text is put together."""

    def __init__(self, messages: int, seed: int = 7, vocabulary: int = 120_000) -> None:
        self.messages = messages
        self._rng = rng = random.Random(seed)
        words = _vocabulary(rng, vocabulary)
        weights = list(accumulate(1 / (rank + 2.7) ** 1.05 for rank in range(len(words))))
        self._words = words

        def word() -> str:
            return words[bisect_left(weights, rng.random() * weights[-1])]

        self._prose = [" ".join(word() for _ in range(rng.randrange(2, 9))) for _ in range(60_000)]
        self._code = [_line_of_code(rng, word) for _ in range(40_000)]
        self._rare = words[len(words) // 4 :]
        self.about: dict[str, list[str]] = {}

    @property
    def sessions(self) -> int:
        return max(self.messages // PER_SESSION, 1)

    def batches(self, size: int = 5000) -> Iterator[list[Content]]:
        """Every message as content, session by session, so many at a time."""
        batch: list[Content] = []
        for number in range(self.sessions):
            batch += self._session(number)
            if len(batch) >= size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _session(self, number: int) -> Iterator[Content]:
        rng = random.Random(f"session {number}")
        session_id = f"{rng.getrandbits(64):016x}-{number:06d}"
        subjects = rng.sample(SUBJECTS, 4)
        names = rng.sample(self._rare, 3)
        self.about[session_id] = [*subjects, *names]
        began = at(number * 60)
        title = rng.choice(self._prose)
        yield text("title:ai", title, role="system", kind="title", session_id=session_id, ts=began)
        for i in range(PER_SESSION):
            facts = {"session_id": session_id, "ts": at(number * 60 + i * 0.5)}
            kind = i % 4
            if i % 25 == 0:
                asked = [rng.choice(self._prose), *rng.sample(subjects, 3), rng.choice(self._prose), *names]
                yield text(f"u{i}", " ".join(asked), role="user", **facts)
            elif kind == 0:
                yield text(f"u{i}", self.prose(rng, 120), role="user", **facts)
            elif kind == 1:
                yield text(f"a{i}", self.prose(rng, 300) + " " + rng.choice(subjects), **facts)
            elif kind == 2:
                name = f"/srv/{rng.choice(names)}/{rng.choice(subjects)}.py"
                yield tool_use(f"a{i}", {"file_path": name, "note": rng.choice(self._prose)}, **facts)
            else:
                yield tool_result(f"r{i}", self.code(rng, _long_tailed(rng, 500)), **facts)

    def prose(self, rng: random.Random, size: int) -> str:
        return ". ".join(rng.choices(self._prose, k=max(1, size // 35)))

    def code(self, rng: random.Random, size: int) -> str:
        return "\n".join(rng.choices(self._code, k=max(1, size // 40)))

    def everyday(self, count: int) -> list[str]:
        """Everyday queries: a few adjacent words, sometimes a single one."""
        rng = random.Random("everyday")
        queries = []
        for _ in range(count):
            words = f"{rng.choice(self._prose)} {rng.choice(self._prose)}".split()
            queries.append(" ".join(words[: rng.choice((1, 2, 2, 3, 3, 4, 5, 6))]))
        return queries

    def phrases(self, count: int) -> list[str]:
        """Two or three adjacent words in quotation marks."""
        rng = random.Random("phrases")
        longer = [words for words in (phrase.split() for phrase in self._prose) if len(words) > 2]
        return ['"' + " ".join(rng.choice(longer)[: rng.choice((2, 3))]) + '"' for _ in range(count)]

    def labelled(self, count: int) -> list[Query]:
        """Six words of a session: four of its subjects (one replaced by a synonym, one misspelled), one of its names,
        and a frequent word. Call it after `batches`."""
        rng = random.Random("labelled")
        slips = {word: (other, slip) for word, other, slip in SLIPS}
        queries = []
        for session_id in rng.sample(sorted(self.about), count):
            subjects, names = self.about[session_id][:4], self.about[session_id][4:]
            other, slipped, *kept = rng.sample(subjects, 4)
            words = [slips[other][0], slips[slipped][1], *kept, rng.choice(names), rng.choice(_COMMON.split())]
            rng.shuffle(words)
            queries.append(Query(" ".join(words), session_id))
        return queries


def _vocabulary(rng: random.Random, size: int) -> list[str]:
    syllables = _SYLLABLES.split()
    common = _COMMON.split()
    words = dict.fromkeys(common)
    while len(words) < size:
        word = "".join(rng.choice(syllables) for _ in range(rng.randrange(2, 5)))
        style = rng.random()
        if style < 0.15:
            word = f"{word}_{rng.choice(syllables)}{rng.choice(syllables)}"
        elif style < 0.25:
            word = word + "".join(rng.choice(syllables) for _ in range(2)).capitalize()
        words[word] = None
    known = set(common)
    rest = [word for word in words if word not in known]
    rng.shuffle(rest)
    # Subjects are neither everyday words nor rare ones.
    return [*common, *rest[:500], *SUBJECTS, *(other for _, other, _ in SLIPS), *rest[500:]]


def _line_of_code(rng: random.Random, word: Callable[[], str]) -> str:
    names = [word() for _ in range(4)]
    forms = (
        f"    {names[0]} = {names[1]}_{names[2]}({names[3]})",
        f"src/{names[0]}/{names[1]}.py:{rng.randrange(900)}: {names[2]} {names[3]}",
        f"def {names[0]}_{names[1]}({names[2]}, {names[3]}):",
        f'{{"{names[0]}": "{names[1]} {names[2]}", "n": {rng.randrange(10**6)}}}',
    )
    return forms[rng.randrange(len(forms))]


def _long_tailed(rng: random.Random, median: int) -> int:
    return min(int(median * 2.718 ** (1.1 * rng.gauss(0, 1))), 40_000)
