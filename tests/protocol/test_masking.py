"""Secrets that were resolved are masked at every outlet, in the forms in which they come back."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from emq_ops.cli.output import say
from emq_ops.config.loader import load
from emq_ops.config.wiring import Wiring
from emq_ops.daemon.log import EventLog
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.masking import WITHHELD, masked, remember

SECRET = "p4ss/é+\"word' &1"


@pytest.mark.parametrize(
    "said",
    [
        *(SECRET, SECRET.upper(), SECRET[:-2], quote(SECRET, safe=""), html.escape(SECRET), repr(SECRET)),
        *(json.dumps(SECRET), SECRET.encode().hex(), SECRET.encode("unicode_escape").decode()),
        *(base64.b64encode(f"{'u' * n}:{SECRET}".encode()).decode() for n in range(3)),
    ],
)
def test_a_secret_in_any_form(said: str) -> None:
    remember(SECRET, "P")
    text = masked(f"x {said} y")
    assert "${P}" in text
    left = text.replace("${P}", "")
    assert len(left) < 12 or not any(piece in left for piece in (SECRET[:4], SECRET[4:8]))
    assert masked("p4ss is fine") == "p4ss is fine"


def test_a_secret_that_is_rotated_for_ever_stays_masked() -> None:
    """A daemon reads a new one from its file every hour; what it read first is good no more."""
    remember("another-one", "OTHER")
    for i in range(2000):
        remember(f"secret-{i:05}-value", "P")
    assert masked("secret-01999-value secret-01950-value another-one") == "${P} ${P} ${OTHER}"


def test_what_can_not_be_remembered_is_not_shown() -> None:
    """Such as texts that a play makes of a secret, each another."""
    for i in range(1025):
        remember(f"{i:05}-made-of-it", "P", made=True)
    for said in ("01024-made-of-it", "00001-made-of-it", "nothing at all"):
        assert masked(said) == WITHHELD
    assert str(EmqError("01024-made-of-it")) == WITHHELD


CONFIG = """\
server: {url: "redis://:${P}@127.0.0.1:1", sentinel_password: "${S}"}
state: {url: "${D}"}
archive: {sign: "${K}"}
http: {token: "${T}"}
"""
ENV = {"P": SECRET, "S": "sentinel-pw", "D": "postgresql://u:database%2Fpw@h/d", "K": "signing-key", "T": "page-token"}


def test_what_a_config_resolves_is_masked_in_errors_logs_and_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    wiring = Wiring.of(load([file], ENV))
    _ = wiring.server_url, wiring.options("t"), wiring.state_url, wiring.archive_remote
    for text in (SECRET.upper(), quote(SECRET, safe=""), "sentinel-pw", "database/pw", "database%2Fpw"):
        said = f"refused: {text}."
        say(said)
        EventLog("json").say("word", said=said)
        words = capsys.readouterr().err + str(EmqError(said, where=said, fix=said))
        assert text not in words
        assert words.count("${") + words.count("***") >= 5
