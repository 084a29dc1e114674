"""C17: an apply of five steps killed at every moment; the next plan shows it, the next apply goes on, nothing twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from emq_ops.cli.root import invoke
from emq_ops.deploy.model import Step
from emq_ops.deploy.render import interrupted_words
from emq_ops.deploy.store import journal
from emq_ops.deploy.store.lock import owner_of, unlock
from emq_ops.ledger.ledger import open_ledger
from emq_ops.passes.lease.holder import user
from emq_ops.protocol.queue import Queue
from emq_ops.protocol.server import Server, connect
from emq_ops.protocol.transitions import control, reads
from tests.deploy.conftest import Desk
from tests.support.keyspace import dump
from tests.support.proxy import RespProxy, writes
from tests.support.run_command import run_command, start_command
from tests.support.valkey import Valkey
from tests.support.zygote import Child

LANE = "GRP0SSBKAh61tG"
FIVE = f"""\
queues:
  a: {{settings: {{paused: true, concurrency: 50}}}}
  b: {{settings: {{rate: 9, lanes: {{{LANE}: {{limit: 2}}}}, repeatables: {{n: {{every: 1d, template: x}}}}}}}}
"""
MOMENTS = [(step, what) for step in range(1, 6) for what in ("begun", "written", "done")]


def killed_at(step: int, what: str, valkey: Valkey, state_url: str, folder: Path, text: str = FIVE) -> int:
    """A child process applies and kills itself at that moment; answers its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            with connect(valkey.url) as server, open_ledger(state_url) as ledger:
                desk = Desk(server, ledger, folder)

                def die(at: Step, event: str) -> None:
                    if (at.number, event) == (step, what):
                        os.kill(os.getpid(), signal.SIGKILL)

                desk.session.apply(desk.propose(text), watch=die)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    return pid


def whole(server: Server, folder: Path, state_url: str) -> dict[str, object]:
    """The keyspace that an undisturbed apply leaves, but for the instant of the repeatable."""
    with open_ledger(state_url) as ledger:
        Desk(server, ledger, folder).apply(FIVE)
    return settled(server)


def settled(server: Server) -> dict[str, object]:
    return {key: value for key, value in dump(server).items() if key != "emq:{b}:repeat"}


@pytest.mark.parametrize(("step", "what"), MOMENTS)
def test_c17_killed_at_every_moment(
    step: int, what: str, valkey: Valkey, server: Server, sqlite_url: str, tmp_path: Path
) -> None:
    check(step, what, valkey, server, sqlite_url, tmp_path)


def test_c17_killed_with_the_state_in_postgresql(
    valkey: Valkey, server: Server, postgres: object, tmp_path: Path
) -> None:
    check(2, "written", valkey, server, str(postgres.fresh()), tmp_path)  # type: ignore[attr-defined]  # a Postgres


def check(step: int, what: str, valkey: Valkey, server: Server, url: str, folder: Path) -> None:
    pid = killed_at(step, what, valkey, url, folder)
    with open_ledger(url) as ledger:
        desk = Desk(server, ledger, folder)
        shown = desk.propose(FIVE).plan
        words = interrupted_words(shown)
        assert words is not None
        assert f"interrupted in step {step} of 5" in words
        assert f":{pid}, started " in words
        had_effect = step if what != "begun" else step - 1
        assert [s.write is None for s in shown.steps] == [n <= had_effect for n in range(1, 6)]
        written: list[int] = []

        def note(at: Step, event: str) -> None:
            if event == "written":
                written.append(at.number)

        # The dead owner's lock is taken over at once.
        assert desk.session.apply(desk.propose(FIVE), watch=note).revision == 1
        assert written == list(range(had_effect + 1, 6))
        assert desk.propose(FIVE).plan.empty
        assert desk.propose(FIVE).plan.interrupted is None
        with ledger.read() as connection:
            assert owner_of(connection) is None
    assert (reads.is_paused(Queue(server, "a")), reads.rate(Queue(server, "b"))) == (True, 9)


def test_c17_the_config_went_back(
    valkey: Valkey, server: Server, light_desk: Desk, sqlite_url: str, tmp_path: Path
) -> None:
    """What the killed apply wrote is no drift of somebody's: it is put back, and only that."""
    first = "queues: {a: {settings: {paused: false, concurrency: 4}}}\n"
    light_desk.apply(first)
    before = dump(server)
    killed_at(2, "written", valkey, sqlite_url, tmp_path, FIVE)
    control.pause_queue(Queue(server, "other"))
    shown = light_desk.propose(first).plan
    assert [(s.op, s.address) for s in shown.steps] == [("repair", "a/paused"), ("repair", "a/concurrency")]
    light_desk.apply(first)
    control.resume_queue(Queue(server, "other"))
    assert dump(server) == before
    assert light_desk.propose(first).plan.interrupted is None


def test_c17_status_names_host_pid_start_and_step(
    valkey: Valkey, server: Server, sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pid = killed_at(2, "written", valkey, sqlite_url, tmp_path)
    assert invoke(["state", "status", "--state", sqlite_url, "--url", valkey.url]) == 0
    said = capsys.readouterr().out
    assert f"({user()}@{os.uname().nodename}:{pid}, since 20" in said
    assert "interrupted in step 2" in said
    assert f"{os.uname().nodename}:{pid}" in said


def test_c17_a_killed_plan_leaves_no_lock(valkey: Valkey, server: Server, sqlite_url: str, tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            with connect(valkey.url) as mine, open_ledger(sqlite_url) as ledger:
                Desk(mine, ledger, tmp_path).propose(FIVE)
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(3)
    os.waitpid(pid, 0)
    with open_ledger(sqlite_url) as ledger, ledger.read() as connection:
        assert owner_of(connection) is None
        assert journal.interrupted(connection) is None


def test_unlock_frees_what_a_dead_owner_held(
    valkey: Valkey, server: Server, sqlite_url: str, tmp_path: Path, make_desk: Callable[[], Desk]
) -> None:
    killed_at(1, "begun", valkey, sqlite_url, tmp_path)
    ledger = make_desk().ledger
    before = unlock(ledger)
    assert before is not None
    assert before.what == "apply"
    assert unlock(ledger) is None


def test_apply_resume_goes_on_where_a_killed_command_ended(
    valkey: Valkey, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command line alone: a process that applies, a SIGKILL once its third setting is written, and --resume."""
    monkeypatch.chdir(tmp_path)

    def settings() -> dict[str, object]:  # on the wire: what is ours beside it names the state
        return {key: value for key, value in settled(server).items() if key.startswith("emq:")}

    whole(server, tmp_path, "sqlite:///other.db")
    undisturbed = settings()
    server.write("FLUSHALL")
    with RespProxy(valkey.url) as proxy:
        head = f"server: {{url: '{proxy.url}'}}\nstate: {{url: 'sqlite:///state.db'}}\n"
        Path("config.yaml").write_text(head + FIVE)
        begun: list[Child] = []
        proxy.arm("kill_after", at=3, match=writes, pid=lambda: begun[0].pid)
        begun.append(start_command("apply", "--yes", cwd=tmp_path, out=tmp_path / "out"))
        assert begun[0].wait() == -signal.SIGKILL, (tmp_path / "out").read_text()
        shown = run_command("plan", cwd=tmp_path)
        assert (shown.code, "interrupted in step 3 of 5" in shown.out + shown.err) == (2, True), shown
        ran = run_command("apply", "--resume", "--yes", cwd=tmp_path)
        assert (ran.code, "was cut off in step 3 of 5: this one goes on" in ran.err) == (0, True), ran
        assert settings() == undisturbed
        assert "nothing to resume" in run_command("apply", "--resume", cwd=tmp_path).err
        assert run_command("plan", cwd=tmp_path).code == 0
