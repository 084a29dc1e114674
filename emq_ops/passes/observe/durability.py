"""What the server and the disk below our databases do with data: what an operator should know before a crash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from emq_ops.protocol.server import Server

NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "beegfs", "gfs", "ocfs", "sshfs", "s3fs")
"""File systems of other hosts, by a part of their names: SQLite's locks and its shared memory are not kept there."""
_SECTIONS = ("memory", "persistence", "replication")


def server_risks(server: Server) -> list[str]:
    """How the server may lose jobs that it took, a sentence each. One look at the node that answers."""
    facts: dict[str, str] = {}
    for section in _SECTIONS:
        lines = server.read("INFO", section).decode("utf-8", "replace").splitlines()
        facts |= dict(line.partition(":")[::2] for line in lines if ":" in line)
    return risks_of(facts)


def risks_of(facts: Mapping[str, str]) -> list[str]:
    """The same, of what INFO says."""
    found = []
    policy, limit = facts.get("maxmemory_policy", "noeviction"), int(facts.get("maxmemory") or 0)
    if policy != "noeviction" and limit:
        found.append(
            f"the server evicts keys at its memory limit (maxmemory-policy {policy}): jobs would go without a word; "
            "set it to noeviction"
        )
    without_file = facts.get("aof_enabled") == "0"
    replicas = {name: _parts(facts[name]) for name in facts if name.startswith("slave") and name[5:].isdigit()}
    if without_file:
        found.append(
            "the server keeps no append-only file (appendonly no): a crash loses what came since its last save"
        )
    if without_file and replicas:
        found.append(
            "the server has replicas and no append-only file: started anew by a supervisor it is empty, and empties "
            "them; let Sentinels or the operator start it"
        )
    for replica in replicas.values():
        if replica.get("state", "online") != "online":
            where = f"{replica.get('ip', '?')}:{replica.get('port', '?')}"
            found.append(
                f"replica {where} is not in step ({replica['state']}): promoted now, it would lack jobs, or be empty"
            )
    return found


def _parts(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(","))


def network_disk(path: Path, mounts: Iterable[str] | None = None) -> str | None:
    """The type of the file system of another host that `path` lies on; None where it is this one's, or that can't be
    told. `mounts`: lines as of ``/proc/self/mounts``."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()
        except OSError:
            return None
    there, best, kind = path.absolute(), -1, ""
    for line in mounts:
        words = line.split()
        if len(words) < 3:
            continue
        point = Path(words[1].replace("\\040", " "))
        if len(point.parts) >= best and (there == point or point in there.parents):
            best, kind = len(point.parts), words[2].lower()
    return kind if any(name in kind for name in NETWORK) else None
