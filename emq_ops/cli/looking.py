"""What `plan` and `apply` rest on, looked at before they say anything: server, state, the archive's database and store.
One line each on stderr; nothing is made."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from emq_ops.cli.context import CommandContext
from emq_ops.cli.output import Tell, say
from emq_ops.cli.state import stands
from emq_ops.config.places import tls_words
from emq_ops.database.profile import file_of, shown
from emq_ops.deploy.deployment import Deployment
from emq_ops.ledger.ledger import PROFILE, STATE, Ledger, open_ledger
from emq_ops.protocol.errors import BadInputError
from emq_ops.protocol.server import Server


@contextlib.contextmanager
def ledger_for_a_look(url: str, base: Path) -> Iterator[tuple[Ledger, bool]]:
    """Opens the state, and whether it is there; where it is not, an empty one, gone afterwards. Raises BadInputError
    where it could not be made there either."""
    require_folder(url, base)
    if stands(url, PROFILE, STATE):
        with open_ledger(url) as ledger:
            yield ledger, True
        return
    with tempfile.TemporaryDirectory(prefix="emq-ops-") as folder, open_ledger(f"sqlite:///{folder}/none") as ledger:
        yield ledger, False


def require_folder(url: str, base: Path) -> None:
    """Raises BadInputError where the folder of a SQLite state is not there, and is not the usual one beside the config,
    which is made."""
    file = file_of(url)
    if file is None:
        return
    folder = Path(file).expanduser().absolute().parent
    if not folder.is_dir() and folder != base / ".emq":
        raise BadInputError(
            f"the folder {folder} is not there", where="state.url", fix="correct it, or make the folder"
        )


def look(deployment: Deployment, context: CommandContext, *, offline: bool, tell: Tell = say) -> str:
    """Says what each place holds, a line each; returns what the store holds of the streams archived so far, in words.
    `offline`: the archive's places are not looked at; `tell`: takes the lines. Raises what can't be reached or is
    refused."""
    _say_server(deployment.server, tell, next(iter(context.layers.literals), "emq"))
    current = deployment.current()
    if not deployment.made:
        told = "is not there yet; apply makes it"
    else:
        told = f"revision {current.number} is in force" if current else "nothing was applied yet"
    tls = tls_words(context.wiring.state_url)
    tell(f"emq-ops: state {shown(context.wiring.state_url)}: {told}{f'; {tls}' if tls else ''}")
    if context.wiring.archive is None:
        return ""
    if offline:
        tell("emq-ops: archive: not looked at (--offline)")
        return "nobody looked whether it holds what was archived so far (--offline)"
    from emq_ops.cli.looking_archive import say_archive

    return say_archive(context, deployment.ledger, tell)


def _say_server(server: Server, tell: Tell, queue: str) -> None:
    info = server.info(queue, "server")
    name = info.get("server_name") or "redis"
    version = info.get(f"{name}_version") or info.get("redis_version", "?")
    mode = info.get("server_mode") or info.get("redis_mode", "?")
    tell(f"emq-ops: server {server.where}: {name} {version}, {mode}")
