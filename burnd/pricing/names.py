"""Parses model names into maker, stem, date, version and tag."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

# through which a maker sells its own models, as models.dev calls them
MAKERS: dict[str, tuple[str, ...]] = {
    "alibaba": ("alibaba",),
    "amazon": ("amazon-bedrock",),
    "anthropic": ("anthropic",),
    "cohere": ("cohere",),
    "deepseek": ("deepseek",),
    "google": ("google",),
    "meta": ("llama",),
    "minimax": ("minimax",),
    "mistral": ("mistral",),
    "moonshotai": ("moonshotai",),
    "openai": ("openai",),
    "stepfun": ("stepfun",),
    "xai": ("xai",),
    "xiaomi": ("xiaomi",),
    "zai": ("zai", "zhipuai"),
}

# before a slash or, on Bedrock, before a dot
_VENDORS: dict[str, str] = {maker: maker for maker in MAKERS} | {
    "deepseek-ai": "deepseek",
    "gemini": "google",
    "kimi": "moonshotai",
    "meta-llama": "meta",
    "minimaxai": "minimax",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "qwen": "alibaba",
    "stepfun-ai": "stepfun",
    "x-ai": "xai",
    "xiaomimimo": "xiaomi",
    "z-ai": "zai",
    "zai-org": "zai",
    "zhipuai": "zai",
}

# by the first word of a model name
_FAMILIES: dict[str, str] = {
    "claude": "anthropic",
    "chatgpt": "openai",
    "codex": "openai",
    "gpt": "openai",
    "gemini": "google",
    "gemma": "google",
    "grok": "xai",
    "deepseek": "deepseek",
    "codestral": "mistral",
    "devstral": "mistral",
    "magistral": "mistral",
    "ministral": "mistral",
    "mistral": "mistral",
    "mixtral": "mistral",
    "pixtral": "mistral",
    "voxtral": "mistral",
    "kimi": "moonshotai",
    "moonshot": "moonshotai",
    "mimo": "xiaomi",
    "step": "stepfun",
    "glm": "zai",
    "qvq": "alibaba",
    "qwen": "alibaba",
    "qwq": "alibaba",
    "minimax": "minimax",
    "llama": "meta",
    "command": "cohere",
    "nova": "amazon",
}

_PROVIDERS: dict[str, str] = {
    "aws-bedrock": "amazon-bedrock",
    "bedrock": "amazon-bedrock",
    "azure-ai": "azure",
    "azure-cognitive-services": "azure",
    "azure-openai": "azure",
    "copilot": "github-copilot",
    "dashscope": "alibaba",
    "fireworks": "fireworks-ai",
    "opencode-zen": "opencode",
    "together": "togetherai",
    "together-ai": "togetherai",
    "vertex": "google-vertex",
    "vertex-ai": "google-vertex",
    "vertexai": "google-vertex",
    "zhipu": "zai",
    **{spelling: maker for spelling, maker in _VENDORS.items() if maker not in ("amazon", "meta")},
}

# on the user's own machine, without an API price
LOCAL_PROVIDERS = frozenset(
    ("jan", "llama-cpp", "llama.cpp", "llamacpp", "lm-studio", "lmstudio", "local", "localai", "mlx", "ollama", "vllm")
)

# without public weights: an unknown word before such a name is a gateway
_CLOSED = re.compile(r"(?:claude|chatgpt|codex|gemini|gpt(?!-oss)|grok|o\d)\b")

_LONGEST = 512  # characters, since names are split at each slash
_LONG_CONTEXT = "[1m]"
_ARN = re.compile(r"arn:aws[a-z-]*:bedrock:[^:]*:[^:]*:(?:inference-profile|foundation-model)/(.+)")
_VERTEX = re.compile(r"(?:projects/[^/]+/locations/[^/]+/)?publishers/([^/]+)/models/(.+)")
_FIREWORKS = re.compile(r"accounts/fireworks/(?:models|routers)/(.+)")
_BEDROCK = re.compile(
    r"(?:(us|us-gov|eu|apac|ap|jp|au|ca|sa|global)\.)?"
    r"(ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshot|moonshotai|nvidia|openai|qwen"
    r"|writer|xai|zai)\.(.+)"
)
_COLON_VERSION = re.compile(r"(.+?)(?:-v(\d+))?:(\d+)(?::\d+k)?")
_DASH_VERSION = re.compile(r"((?:claude|nova)-.+)-v(\d+)")
_DATE = re.compile(r"(.+)[-@](20\d\d)(-?)(0[1-9]|1[0-2])\3(0[1-9]|[12]\d|3[01])")
_CLAUDE = re.compile(r"claude-(\d+(?:-\d+)?)-([a-z]+)")  # both orders are in use
_POINT = re.compile(r"\.|(?<=\d)p(?=\d)")  # Fireworks and Kimi's own plan write `k2p6` for K2.6
_KIMI = re.compile(r"k\d(?:p\d)?")
_FAMILY = re.compile(r"[a-z]+")
_OPENAI_O = re.compile(r"o\d")


class Name(NamedTuple):
    """`provider` is set if the name contains it.

    Two names mean the same model only if maker, stem and tag are equal and date and version do not differ. Similarity
    never counts: `claude-opus-5-5` is not `claude-opus-5`.
    """

    provider: str | None
    region: str
    maker: str
    stem: str
    tag: str
    date: str
    is_latest: bool
    version: tuple[str, str]

    def rank_of(self, listed: Name) -> int | None:
        """0 is best, None is no match.

        A dated name matches the plain one, but not `-latest`, which changes over time.
        """
        if any(a and b and a != b for a, b in zip(self.version, listed.version, strict=True)):
            return None
        if self.date == listed.date and self.is_latest == listed.is_latest:
            return 0 if self.version == listed.version else 1
        if self.date:
            return None if listed.date or listed.is_latest else 2
        return 4 if listed.date else 3 if listed.is_latest else 2


def provider_id(provider: str, listed: Container[str]) -> str:
    """At models.dev, for any spelling of harnesses and gateways."""
    lower = provider.strip().lower()
    if lower in listed:
        return lower
    dashed = lower.replace("_", "-").replace(" ", "-")
    return dashed if dashed in listed else _PROVIDERS.get(dashed, dashed)


def parse(model: str, providers: Container[str]) -> Name | None:
    """None if the name is too long or does not identify a model, as an application inference profile does not."""
    if len(model) > _LONGEST:
        return None
    text = model.strip().lower().removesuffix(_LONG_CONTEXT)
    if text.startswith("arn:"):
        arn = _ARN.fullmatch(text)
        return _parse_bedrock(arn[1]) if arn else None
    if vertex := _VERTEX.fullmatch(text):
        return _parse_bare(vertex[2], provider="google-vertex", maker=_VENDORS.get(vertex[1], vertex[1]))
    if fireworks := _FIREWORKS.fullmatch(text):
        return _parse_bare(fireworks[1], provider="fireworks-ai")
    return _parse_slashed(text.removeprefix("models/"), providers)


def _parse_slashed(text: str, providers: Container[str]) -> Name | None:
    provider: str | None = None
    head, slash, rest = text.partition("/")
    if slash and head not in _VENDORS and provider_id(head, providers) in providers:
        provider = provider_id(head, providers)
        text = rest
        head, slash, rest = text.partition("/")
    if slash:
        # After an unknown word the maker must be certain: `litellm/claude-opus-5` is Anthropic's, but
        # `acme/llama-3.3-70b` may be a model that acme derived from Meta's.
        behind = None if head in _VENDORS or head in LOCAL_PROVIDERS else _parse_slashed(rest, providers)
        is_gateway = behind is not None and ("/" in rest or behind.provider or _CLOSED.match(behind.stem))
        if behind is not None and is_gateway and behind.maker in MAKERS:
            return behind._replace(provider=provider or behind.provider)
        return _parse_bare(rest, provider=provider, maker=_VENDORS.get(head, head))
    if provider in (None, "amazon-bedrock") and _BEDROCK.fullmatch(text):
        return _parse_bedrock(text)
    return _parse_bare(text, provider=provider)


def _parse_bedrock(text: str) -> Name | None:
    dotted = _BEDROCK.fullmatch(text)
    if not dotted:
        return _parse_bare(text, provider="amazon-bedrock")
    vendor = dotted[2]
    return _parse_bare(dotted[3], provider="amazon-bedrock", maker=_VENDORS.get(vendor, vendor), region=dotted[1] or "")


def _parse_bare(text: str, *, provider: str | None, maker: str = "", region: str = "") -> Name | None:
    vendor, _, model = text.partition("--")  # the maker, as SAP's AI Core writes it
    if model and vendor in _VENDORS:
        text, maker = model, maker or _VENDORS[vendor]
    if _KIMI.fullmatch(text):
        text = f"kimi-{text}"
    text, colon_version, tag = _POINT.sub("-", text), ("", ""), ""
    if versioned := _COLON_VERSION.fullmatch(text):  # `-v1:0`
        text, colon_version = versioned[1], (versioned[2] or "", versioned[3])
    else:  # `:free`: another model
        text, _, tag = text.partition(":")
    if provider is None and "@" in text:  # Vertex writes a date after `@`, OpenRouter vendor/model:variant
        provider = "google-vertex"
    elif provider is None and tag and maker:
        provider = "openrouter"
    text, version_after = _split_version(text)
    date, is_latest = "", text.endswith(("-latest", "@latest"))
    if dated := _DATE.fullmatch(text):
        text, date = dated[1], dated[2] + dated[4] + dated[5]
    else:
        text = text.removesuffix("@default")[: -len("-latest") if is_latest else None]
    text, version_before = _split_version(text)
    if not text:
        return None
    family = _FAMILY.match(text)
    family_maker = "openai" if _OPENAI_O.match(text) else _FAMILIES.get(family[0], "") if family else ""
    return Name(
        provider=provider,
        region=region,
        maker=maker or family_maker,
        stem=_CLAUDE.sub(r"claude-\2-\1", text) if _CLAUDE.fullmatch(text) else text,
        tag=tag,
        date=date,
        is_latest=is_latest,
        version=(colon_version[0] or version_after or version_before, colon_version[1]),
    )


def _split_version(text: str) -> tuple[str, str]:
    # not for other makers: nemotron-nano-9b-v2 is another model than nemotron-nano-9b
    versioned = _DASH_VERSION.fullmatch(text)
    return (versioned[1], versioned[2]) if versioned else (text, "")
