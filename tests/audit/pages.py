"""What a browser would see of a page, and what it must not find there."""

from __future__ import annotations

import re
from html.parser import HTMLParser

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
"""What steers a terminal, turns or hides text, or ends a line."""


class Page(HTMLParser):
    """What a browser would see: every tag with its attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def check_page(text: str) -> Page:
    """One file, nothing from elsewhere, no script, nothing that an attribute could run."""
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "embed", "base", "form", "a", "use", "image"}
    for _, attributes in page.tags:
        assert not {n for n in attributes if n.startswith("on") or n in ("src", "href", "xlink:href", "style")}
    style = re.sub(r"/\*.*?\*/", "", text[text.index("<style>") : text.index("</style>")])
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in text
    assert not UNSAFE.search(text)
    return page
