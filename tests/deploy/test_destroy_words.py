"""What `destroy` says of settings that stay: in the words of the YAML, and as what they are."""

from __future__ import annotations

from emq_ops.deploy import render
from emq_ops.deploy.document import Document
from tests.deploy.conftest import Desk


def test_settings_that_stay(light_desk: Desk) -> None:
    settings = "concurrency: 50, paused: true, repeatables: {r: {every: 1h, template: '{\"a\": 1}'}}"
    light_desk.apply(f"queues: {{orders: {{settings: {{{settings}}}}}}}\n")
    plan = light_desk.session.propose_document(Document.empty(), "destroy").plan
    text = render.text(plan)
    assert "'every'" not in text
    assert "unset" not in text
    for said in ("stays 50 on the server", "stays true on the server", 'stays {"every": "1h", "template": '):
        assert said in text
