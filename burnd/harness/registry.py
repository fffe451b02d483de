"""The agent products whose sessions burnd reads: the only list of them, from which settings, help and docs derive."""

from __future__ import annotations

from burnd.harness.api.product import SOURCES as API_SOURCES
from burnd.harness.claude_code.product import PRODUCT as CLAUDE_CODE
from burnd.harness.codex.product import PRODUCT as CODEX
from burnd.harness.opencode.product import PRODUCT as OPENCODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from burnd.harness.product import Product

PRODUCTS: tuple[Product, ...] = (
    CLAUDE_CODE,
    CODEX,
    OPENCODE,
)
BY_SOURCE = {product.source: product for product in PRODUCTS}
USUAL = PRODUCTS[0].source  # of requests that name no source
SOURCES = (*BY_SOURCE, *API_SOURCES)  # all that sessions can come from


def source_of(name: str) -> str:
    """The source with this name, title or program ("claude"); else the name itself."""
    plain = name.strip().lower()
    for product in PRODUCTS:
        if plain in (product.source, product.title.lower(), product.program):
            return product.source
    return name


_ERROR_CHARS = 240  # of a text are compared


def is_client_error(text: str) -> bool:
    """Whether a text is a product's error message, such as "Invalid API key · Please run /login"."""
    begin = text[:_ERROR_CHARS].strip().casefold().replace("\u2019", "'")
    return any(
        begin.startswith(product.error_beginnings)
        or begin.rstrip(".") in product.errors
        or any(part in begin for part in product.error_parts)
        for product in PRODUCTS
    )


def all_titles(word: str = "and") -> str:
    """The products in a sentence: "Claude Code, Codex and opencode"."""
    *others, last = (product.title for product in PRODUCTS)
    return f"{', '.join(others)} {word} {last}" if others else last
