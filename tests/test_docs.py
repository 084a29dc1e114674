"""Documents say what is there: links, headings, files that they name, and the pages that the code cites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    p for pattern in ("*.md", "docs/**/*.md", "archive/*.md", "examples/**/*.md") for p in ROOT.glob(pattern)
)
SOURCES = sorted(p for folder in ("emq_ops", "archive", "lua", "tests") for p in (ROOT / folder).rglob("*"))
FILE = re.compile(r"`((?:emq_ops|emq_archive|lua|archive|tests|playbooks|docs|examples|benchmarks)/[\w./-]+)`")
"""A path from the root (`emq_archive/` lies in `archive/`), in code quotes."""
CITED = re.compile(r"docs/(\w+\.md)((?:,? \*[^*]+\*)*)")
"""``docs/protocol.md, *Keys*`` in a comment or docstring."""


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (fragment and fragment not in map(anchor, headings(target))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    named = FILE.findall(page.read_text())
    missing = [path for path in named if not any((base / path).exists() for base in (ROOT, ROOT / "archive"))]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_in_files_exist(page: Path) -> None:
    """``file.py`` (`name`) or `name` (`file.py`): written ``emq_ops/x.py:name``."""
    lost = []
    for path, name in re.findall(r"`((?:emq_ops|emq_archive)/[\w/]+\.py):([\w.]+)`", page.read_text()):
        [source] = [base / path for base in (ROOT, ROOT / "archive") if (base / path).exists()] or [None]
        last = name.rpartition(".")[2]
        if source is None or not re.search(
            rf"\b(?:def|class) {last}\b|^\s*{last}\b.*=", source.read_text(), re.MULTILINE
        ):
            lost.append(f"{path}:{name}")
    assert lost == []


def test_pages_that_the_code_cites_exist() -> None:
    cited, lost = 0, []
    for source in SOURCES:
        if source.suffix not in (".py", ".lua") or source == Path(__file__):
            continue
        for page, sections in CITED.findall(source.read_text()):
            target = ROOT / "docs" / page
            known = headings(target) if target.exists() else []
            for section in re.findall(r"\*([^*]+)\*", sections) or [""]:
                cited += 1
                if not target.exists() or (section and section not in known):
                    lost.append(f"{source.relative_to(ROOT)}: docs/{page} {section}")
    assert lost == []
    assert cited >= 6


def test_no_page_is_cited_but_by_its_file() -> None:
    vague = [
        str(source.relative_to(ROOT))
        for source in SOURCES
        if source.suffix in (".py", ".lua")
        and source != Path(__file__)
        and re.search(r"\b(?:protocol|design) page\b", source.read_text())
    ]
    assert vague == []
