"""Why a cache was missed, in words: a sentence where there is room for it, else a few words."""

from __future__ import annotations

_SENTENCES = {
    "pause": "the cache expired during a pause",
    "slow-call": "the cache expired while a call ran or waited for permission",
    "prefix": "the start of the context changed, or the provider dropped it",
    "model-switch": "the request before used another model",
    "compaction": "the context was compacted",
    "rewind": "the conversation went back to an earlier point",
    "edited": "a part in the middle of the context was removed",
    "unknown": "the reason is not known",
}
_WORDS = {
    "pause": "expired in a pause",
    "slow-call": "expired in a long call",
    "prefix": "start changed or dropped",
    "model-switch": "another model",
    "compaction": "after a compaction",
    "rewind": "went back",
    "edited": "changed in the middle",
    "unknown": "reason not known",
}


def sentence(reason: str) -> str:
    return _SENTENCES.get(reason, reason)


def words(reason: str) -> str:
    return _WORDS.get(reason, reason)
