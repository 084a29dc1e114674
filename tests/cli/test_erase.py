"""`archive erase` leaves nothing of a job in any place that we write, and nothing brings it back."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from emq_ops.ledger import acts, deaths, runs
from emq_ops.ledger.erasure import redacted
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.acts.act import act
from emq_ops.passes.acts.selection import DeadSelection
from emq_ops.passes.acts.targets import choose
from emq_ops.passes.acts.undo import undo_run
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server
from emq_ops.protocol.transitions import jobs
from tests.audit.working import failed
from tests.support.cli import Ran, emq
from tests.support.postgres import Postgres
from tests.support.s3 import CREDENTIALS, S3Server
from tests.support.valkey import Valkey

PLAY = """
- name: look
  queues: orders
  tasks:
    - {name: dead ones, audit: {}, register: found}
    - {name: which, set_fact: {kept: "{{ found.groups }}"}}
"""
CONFIG = """
server: {{url: "{server}"}}
state: {{url: "{state}"}}
archive: {{local: "sqlite:///archive.db", remote: {{url: "{remote}"}}}}
queues: {{orders: {{dead: {{keep: 100, archive: true}}, streams: {{completions: {{}}}}}}}}
"""


class Secrets:
    """What is in one job, each text at random: such as stands nowhere by chance."""

    def __init__(self) -> None:
        self.payload, self.progress, self.line = os.urandom(40_000), os.urandom(3_000), os.urandom(3_000)
        self.error = (
            b"no such customer " + os.urandom(16).hex().translate(str.maketrans("0123456789", "ghijklmnop")).encode()
        )

    def found_in(self, held: bytes) -> list[str]:
        """Which of them stand in these bytes, by a stretch of each that no page of a database cuts."""
        parts = {
            "payload": [self.payload[at : at + 200] for at in range(0, 40_000, 997)],
            "progress": [self.progress[at : at + 64] for at in range(0, 3_000, 500)],
            "line": [self.line[at : at + 64] for at in range(0, 3_000, 500)],
            "error": [self.error[20:]],
        }
        return [name for name, some in parts.items() if any(part in held for part in some)]


class Place:
    """A folder with a config, and an archive and a state that know of two dead jobs in every way there is."""

    def __init__(self, server: Server, valkey: Valkey, folder: Path, state: str, remote: str) -> None:
        self.server, self.folder, self.state = server, folder, state
        (folder / "config.yaml").write_text(CONFIG.format(server=valkey.url, state=state, remote=remote))
        (folder / "play.yaml").write_text(PLAY)
        self.q = Queue(server, "orders")
        self.secrets = {self._dead(secrets): secrets for secrets in (Secrets(), Secrets())}
        self.gone, self.other = self.secrets

    def _dead(self, secrets: Secrets) -> str:
        job = failed(self.q, secrets.error, payload=secrets.payload)
        self.server.write("HSET", self.q.keys.row(job), "progress", secrets.progress)
        jobs.add_log(self.q, job, secrets.line)
        return job

    def fill(self) -> str:
        """Both go through a removal that is undone, a playbook, a trim into the archive; returns the trim's run."""
        with open_ledger(self.state) as ledger:
            removal = act(self.server, acts.REMOVE, choose(self.server, "orders", DeadSelection()), ledger)
            assert undo_run(self.server, removal.run or "", ledger).done == 2
        assert emq("play", "play.yaml").code == 0
        trim = self.run("trim", "orders", "--yes", "--keep", "0")
        assert trim["removed"] == 2
        return str(trim["run"])

    def run(self, *argv: str) -> Any:
        ran: Ran = emq(*argv, "--output", "json")
        assert ran.code == 0, ran
        return json.loads(ran.out)

    def held(self) -> bytes:
        return b"".join(file.read_bytes() for file in sorted(self.folder.rglob("*")) if file.is_file())


@pytest.fixture
def place(server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(server, valkey, tmp_path, f"sqlite:///{tmp_path}/state.db", f"file:{tmp_path}/bucket")


@pytest.mark.parametrize("streams", [[], ["dead"]], ids=["every stream", "one stream"])
def test_no_byte_of_a_job_is_left_in_any_file_and_nothing_brings_it_back(place: Place, streams: list[str]) -> None:
    trim = place.fill()
    assert place.secrets[place.gone].found_in(place.held()) == ["payload", "progress", "line", "error"]
    dry = place.run("archive", "erase", "orders", *streams, "--job", place.gone, "--dry-run")
    assert (dry["state"]["deaths"], dry["state"]["acts"], dry["records"]) == (1, 1, 1)
    done = place.run("archive", "erase", "orders", *streams, "--job", place.gone, "--yes")
    assert (done["state"]["deaths"], done["state"]["acts"], done["records"], done["notes"]) == (1, 1, 1, [])
    assert place.secrets[place.gone].found_in(place.held()) == []
    assert place.secrets[place.other].found_in(place.held())
    # Not by name, not with its run, not from the archive.
    ran = emq("rehydrate", "orders", place.gone, "--output", "json")
    assert (ran.code, json.loads(ran.out)["left"]) == (1, {"erased": 1})
    ran = emq("archive", "rehydrate", "orders", "dead", "--job", place.gone)
    assert ran.code == 1
    back = place.run("undo", trim)
    assert (back["done"], back["left"]) == (1, {"erased": 1})
    assert place.server.read("EXISTS", place.q.keys.row(place.gone)) == 0
    assert place.server.read("EXISTS", place.q.keys.row(place.other)) == 1
    again = place.run("archive", "erase", "orders", *streams, "--job", place.gone, "--yes")
    assert (again["records"], again["state"]["deaths"]) == (0, 0)
    life = place.run("audit", "job", place.gone)
    assert "died" in [event["what"] for event in life["events"]]
    assert life["row"] == {}


def test_an_erased_job_that_still_stands_in_the_queue_is_not_kept_again(place: Place) -> None:
    """It dies, is seen by passes, and is taken away by a person; a trim that may not archive it leaves it."""
    done = place.run("archive", "erase", "orders", "--job", place.gone, "--yes")
    assert done["notes"] == [f"{place.gone} still stands in the queue; nothing of it is kept again"]
    report = place.run("trim", "orders", "--yes", "--keep", "0")
    assert report["removed_jobs"] == [place.other]
    assert place.secrets[place.gone].found_in(place.held()) == []
    with open_ledger(place.state) as ledger:
        found = {death.job: death for death in deaths.iterate(ledger)}
        assert (found[place.gone].snapshot, found[place.gone].last_error) == (None, None)
        assert found[place.other].snapshot is not None


def test_a_trim_leaves_an_erased_job_that_came_back_and_a_removal_keeps_nothing_of_it(place: Place) -> None:
    place.fill()
    place.run("archive", "erase", "orders", "--job", place.gone, "--yes")
    place.server.write(
        "HSET", place.q.keys.row(place.gone), "attempts", "1", "payload", place.secrets[place.gone].payload
    )
    place.server.write("ZADD", place.q.keys.dead, 0, place.gone)
    report = place.run("trim", "orders", "--yes", "--keep", "0")
    assert report["removed"] == 0
    assert [(one["job"], one["reason"]) for one in report["skipped"]] == [
        (place.gone, "not archived: it was erased, and is not archived again")
    ]
    removed = place.run("audit", "dead", "orders", "--job", place.gone, "--remove", "--yes")["acts"][0]
    assert removed["done"] == 1
    assert place.secrets[place.gone].found_in(place.held()) == []
    ran = emq("undo", removed["run"], "--output", "json")
    assert json.loads(ran.out)["left"] == {"erased": 1}


def test_a_backup_that_a_killed_removal_left_on_the_server_goes_too(place: Place) -> None:
    with open_ledger(place.state) as ledger:
        chosen = choose(place.server, "orders", DeadSelection(jobs=(place.gone,)))
        run = runs.start(ledger, acts.REMOVE, "orders", holder="nobody", policy={})
        with ledger.write() as connection:
            acts.plan(connection, run, chosen.jobs, 0)
    keys = place.q.keys.backups(run, place.gone)
    place.server.write("RENAME", place.q.keys.row(place.gone), keys[0])
    place.run("archive", "erase", "orders", "--job", place.gone, "--yes")
    assert place.server.read("EXISTS", *keys) == 0


def test_in_postgresql_no_byte_is_left_in_the_tables_files(
    server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Postgres
) -> None:
    monkeypatch.chdir(tmp_path)
    place = Place(server, valkey, tmp_path, postgres.fresh(), f"file:{tmp_path}/bucket")
    place.fill()
    assert place.secrets[place.gone].found_in(tables(postgres, place.state)) != []
    done = place.run("archive", "erase", "orders", "--job", place.gone, "--yes")
    assert [note for note in done["notes"] if "WAL" not in note] == []
    assert place.secrets[place.gone].found_in(tables(postgres, place.state)) == []
    assert place.secrets[place.other].found_in(tables(postgres, place.state)) != []


def tables(postgres: Postgres, url: str) -> bytes:
    """Every byte of a database's tables, as they stand on the server's disk."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        found = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
    assert found is not None
    held = []
    for file in Path(postgres.dir, "base", str(found[0])).iterdir():
        with contextlib.suppress(FileNotFoundError):  # a cache that is written anew
            held.append(file.read_bytes())
    return b"".join(held)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as opened:
        yield opened


def test_versions_that_a_bucket_keeps_are_named_and_removed_where_it_allows_that(
    server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket, client = s3.bucket(), s3.client()
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    rule = {
        "ID": "old",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 30},
    }
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    place = Place(server, valkey, tmp_path, f"sqlite:///{tmp_path}/state.db", f"s3://{bucket}/p?endpoint={s3.url}")
    place.fill()

    def versions() -> bytes:
        found = client.list_object_versions(Bucket=bucket).get("Versions", [])
        bodies = [
            client.get_object(Bucket=bucket, Key=v["Key"], VersionId=v["VersionId"])["Body"].read() for v in found
        ]
        return b"".join(bodies)

    assert place.secrets[place.gone].found_in(versions())
    done = place.run("archive", "erase", "orders", "--job", place.gone, "--yes")
    assert (done["versions"], len(done["versions_stay"])) == (0, 1)
    [note] = done["notes"]
    assert "keeps 1 older version of segments with the job" in note
    assert "takes them away after 30 days" in note
    assert "--versions removes them" in note
    assert place.secrets[place.gone].found_in(versions())
    done = place.run("archive", "erase", "orders", "--job", place.gone, "--yes", "--versions")
    assert (done["versions"], done["versions_stay"], done["notes"]) == (1, [], [])
    assert place.secrets[place.gone].found_in(versions()) == []
    assert place.secrets[place.other].found_in(versions())
    client.close()


def test_versions_under_object_lock_are_named_and_stay(
    server: Server, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket, client = s3.bucket(locked=True), s3.client()
    until = datetime.now(UTC) + timedelta(days=30)
    url = f"s3://{bucket}/p?endpoint={s3.url}"
    place = Place(server, valkey, tmp_path, f"sqlite:///{tmp_path}/state.db", url)
    place.fill()
    held = [v for v in client.list_object_versions(Bucket=bucket)["Versions"] if v["Key"].endswith(".parquet")]
    for version in held:
        retention = {"Mode": "COMPLIANCE", "RetainUntilDate": until}
        where = {"Bucket": bucket, "Key": version["Key"], "VersionId": version["VersionId"]}
        client.put_object_retention(**where, Retention=retention)
    for more in ([], ["--versions"]):
        done = place.run("archive", "erase", "orders", "--job", place.gone, "--yes", *more)
        assert done["versions"] == 0
        [stays] = done["versions_stay"]
        assert stays.split("@")[1] in {version["VersionId"] for version in held}
        assert any("some under object lock" in note for note in done["notes"])
    assert any(note.startswith(f"{stays} stays: ") for note in done["notes"]), done["notes"]
    assert "--versions removes them" not in " ".join(done["notes"])
    [version] = [v for v in held if v["VersionId"] == stays.split("@")[1]]
    body = client.get_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])["Body"].read()
    assert place.secrets[place.gone].found_in(body)  # it is there for certain: nothing else was told


def test_texts_that_quote_a_job_are_cleaned_and_others_stay_as_they_are() -> None:
    job, quotes = "JOB0STBBIRAKHo", ["order of Ada", "Ada"]
    assert redacted("failed: order of Ada", job, quotes) == "failed: (erased)"
    facts = {
        "groups": [{"example": job, "error": "no such #", "count": 2}, {"example": "JOB1", "error": "boom"}],
        "n": 1,
    }
    clean = json.loads(redacted(json.dumps(facts), job, quotes))
    assert clean == {**facts, "groups": [{"example": job, "error": "(erased)", "count": 2}, facts["groups"][1]]}
    assert redacted('{"b": 1,  "a": "x"}', job, quotes) == '{"b": 1,  "a": "x"}'
    assert json.loads(redacted(json.dumps(["x Ada y"]), job, quotes)) == ["x (erased) y"]
