"""``up --watch``: the config file, what it includes, and files that come, go and are replaced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from emq_ops.cli.context import CommandContext
from emq_ops.cli.options import GlobalOptions
from emq_ops.cli.up import FileFollower
from emq_ops.daemon.log import EventLog
from emq_ops.deploy.deployment import Deployment
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.events import Event
from emq_ops.protocol.server import Server
from tests.support.valkey import Valkey

HEAD = (
    "server: {{url: 'unix://{socket}'}}\nstate: {{url: 'sqlite:///state.db'}}\ninclude: ['conf.d/*.yaml', more.yaml]\n"
)


class Heard(EventLog):
    """Keeps the faults that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def __call__(self, event: Event) -> None:
        self.faults.append(str(event.facts()["error"]))


class Followed:
    """A folder of config files, and what follows them."""

    def __init__(self, folder: Path, session: Deployment, context: CommandContext) -> None:
        self.folder, self._session = folder, session
        self.log = Heard()
        self.look = FileFollower(context, session, self.log, allow_loss=False)

    def write(self, name: str, queue: str, every: str = "1h") -> None:
        """Replaces a file as editors do."""
        part = self.folder / "new"
        part.write_text(f"queues: {{{queue}: {{stalled: {{every: {every}}}}}}}\n")
        part.replace(self.folder / name)

    def queues(self) -> dict[str, str]:
        found = self._session.current()
        return {} if found is None else {q: e["stalled"]["every"] for q, e in found.document.queues.items()}


@pytest.fixture
def followed(tmp_path: Path, valkey: Valkey, server: Server) -> Iterator[Followed]:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "config.yaml").write_text(HEAD.format(socket=valkey.socket))
    for name, queue in (("conf.d/a.yaml", "a"), ("more.yaml", "m")):
        (tmp_path / name).write_text(f"queues: {{{queue}: {{stalled: {{every: 1h}}}}}}\n")
    context = CommandContext(GlobalOptions(configs=[tmp_path / "config.yaml"]))
    with open_ledger(f"sqlite:///{tmp_path}/state.db") as ledger:
        yield Followed(tmp_path, Deployment(server, ledger, context.wiring), context)


def test_files_that_come_and_go_in_a_folder_of_includes(followed: Followed) -> None:
    followed.look()
    assert followed.queues() == {}  # nothing changed since the start
    followed.write("conf.d/b.yaml", "b")
    followed.look()
    assert followed.queues() == {"a": "1h", "b": "1h", "m": "1h"}
    (followed.folder / "conf.d" / "b.yaml").unlink()
    followed.look()
    followed.look()
    assert followed.queues() == {"a": "1h", "m": "1h"}
    followed.write("more.yaml", "m", every="2h")
    followed.look()
    assert followed.queues() == {"a": "1h", "m": "2h"}


def test_a_file_that_is_being_replaced_is_no_fault(followed: Followed) -> None:
    more = followed.folder / "more.yaml"
    shutil.move(more, followed.folder / "more.old")
    followed.look()
    assert followed.log.faults == []
    followed.write("more.yaml", "m", every="3h")
    followed.look()
    assert (followed.queues(), followed.log.faults) == ({"a": "1h", "m": "3h"}, [])
    more.unlink()
    followed.look()
    followed.look()
    followed.look()
    assert len(followed.log.faults) == 1
    assert "more.yaml: No such file or directory" in followed.log.faults[0]
    followed.write("more.yaml", "m", every="4h")
    followed.look()
    assert followed.queues() == {"a": "1h", "m": "4h"}
