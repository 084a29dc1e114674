"""Bad input: each file is refused by one clear line: place, path, what was expected, what comes closest."""

from __future__ import annotations

from pathlib import Path

import pytest

from emq_ops.config.effective import Layers
from emq_ops.config.loader import load
from emq_ops.syntax.errors import SourceError

EVERY = "expected an interval (30s, 10m) or a cron expression with an optional time zone ('0 3 * * * Europe/Berlin')"
DURATION = "expected a duration with its unit, such as 250ms, 30s, 10m, 6h or 30d"
SIZE = "expected a size with its unit, such as 512KiB, 64MiB or 1GiB"
SECRET = (
    "expected a reference such as ${NAME}, never the secret itself (set NAME in the environment, without a default)"
)
URL = (
    "expected a URL without its secret (write ${NAME} in its place, or take password:, and set NAME in the environment)"
)
NOTHING = "the file says nothing (write what holds, or {} for nothing but defaults)"
COUNT = "queues.orders.dead.keep: expected a whole number, 0 or more, got"


def laughs() -> str:
    lines = ["x-a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for i in range(9):
        lines.append(f"x-{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]")
    return "\n".join(lines)


REFUSED: list[tuple[str, str | bytes, str]] = [
    ("unknown key", "queues:\n  orders:\n    dead: {kepe: 3}\n",
     "3:12: queues.orders.dead.kepe: unknown key (did you mean 'keep'?)"),
    ("unknown section", "servr: {}\n", "1:1: servr: unknown key (did you mean 'server'?)"),
    ("unlike any key", "queues:\n  orders:\n    zzz: 3\n",
     "3:5: queues.orders.zzz: unknown key (keys here: note, stalled, dead, streams, "),
    ("a token in the path of an alert's URL", "alerts: [{url: 'slack://TokenA123/TokenB456/TokenC789'}]\n",
     "1:16: alerts[0].url: expected no secret written out (write ${NAME} for it, or for the whole URL, and set NAME in"
     " the environment)"),
    ("an alert's URL of no service", "alerts: [{url: 'json://127.0.0.1:8080/'}, {url: 'slakc://host'}]\n",
     "1:49: alerts[1].url: expected a URL that apprise takes (its list of services has the form of each)"),
    ("no", "queues: {orders: {protect: no}}\n",
     "1:28: queues.orders.protect: expected true or false, got 'no' (write false)"),
    ("on", "queues: {orders: {settings: {paused: on}}}\n",
     "1:38: queues.orders.settings.paused: expected true or false, got 'on' (write true)"),
    ("1e3", "queues: {orders: {dead: {keep: 1e3}}}\n", f"1:32: {COUNT} 1000.0 (write 1000)"),
    ("1_000", "queues: {orders: {dead: {keep: 1_000}}}\n", f"1:32: {COUNT} '1_000' (write 1000)"),
    ("0b11", "queues: {orders: {dead: {keep: 0b11}}}\n", f"1:32: {COUNT} '0b11' (write 3)"),
    ("a tag that lies", "queues: {orders: {dead: {keep: !!int x}}}\n",
     "1:32: queues.orders.dead.keep: 'x' is no number"),
    ("1.0", "queues: {orders: {dead: {keep: 1.0}}}\n", f"1:32: {COUNT} 1.0"),
    ("a quoted number", "queues: {orders: {dead: {keep: '5'}}}\n", f"1:32: {COUNT} '5' (write 5 without quotes)"),
    ("keep -1", "queues: {orders: {dead: {keep: -1}}}\n", f"1:32: {COUNT} -1"),
    ("22:30", "queues: {orders: {dead: {every: 22:30, keep: 1}}}\n",
     f"1:33: queues.orders.dead.every: {EVERY}, got '22:30' "
     "(write 22m30s or 22h30m; a time of day is a cron expression)"),
    ("an interval without a unit", "queues: {orders: {stalled: {every: 30}}}\n",
     f"1:36: queues.orders.stalled.every: {EVERY}, got 30 (write 30s, or 30ms, 30m, 30h, 30d, as it is meant)"),
    ("a duration without a unit", "queues: {orders: {stalled: {lease: 30}}}\n",
     f"1:36: queues.orders.stalled.lease: {DURATION}, got 30 (write 30s, or 30ms, 30m, 30h, 30d, as it is meant)"),
    ("a size without a unit", "archive: {segment: 64}\n",
     f"1:20: archive.segment: {SIZE}, got 64 (write 64B, or 64KiB, 64MiB, as it is meant)"),
    ("a decimal size", "archive: {segment: 64MB}\n", f"1:20: archive.segment: {SIZE}, got '64MB' (write 64MiB)"),
    ("a negative interval", "queues: {orders: {stalled: {every: -5s}}}\n",
     f"1:36: queues.orders.stalled.every: {EVERY}, got '-5s' (without a sign)"),
    ("an interval of nothing at all", "queues: {orders: {stalled: {every: 0}}}\n",
     f"1:36: queues.orders.stalled.every: {EVERY}, got 0 (at least 10ms)"),
    ("an interval with a blank", "queues: {orders: {stalled: {every: 1h 30m}}}\n",
     f"1:36: queues.orders.stalled.every: {EVERY}, got '1h 30m' (write 1h30m)"),
    ("more jitter than interval", "defaults: {stalled: {every: 1h, jitter: 30s}}\nqueues: {a: {stalled: {every: 5s}}}",
     "1:41: queues.a.stalled.jitter: expected at most the interval (5s), got 30s"),
    ("never late", "queues: {orders: {stalled: {every: 5s, max_late: 0s}}}\n",
     f"1:50: queues.orders.stalled.max_late: {DURATION}, got '0s' (at least 1s)"),
    ("a pass that is said not to be", "queues: {orders: {dead: false}}\n",
     "1:25: queues.orders.dead: expected a mapping, got false (write {enabled: false})"),
    ("more than a number holds", "queues: {orders: {dead: {keep: 99999999999999999999999999}}}\n",
     f"1:32: {COUNT} 99999999999999999999999999 (at most 1000000000000)"),
    ("an endpoint that is empty", "archive: {remote: {url: 's3://b', endpoint: ''}}\n",
     "1:45: archive.remote.endpoint: expected http:// or https:// and a host, got '' "
     "(write https:// and the store's host, or take it out)"),
    ("no bucket", "archive: {remote: {url: 's3://'}}\n",
     "1:25: archive.remote.url: expected file:DIR or s3://bucket/prefix, got 's3://' (name a bucket)"),
    ("another scheme for the same", "server: {url: 'valkey://h'}\n",
     "1:15: server.url: expected a URL with one of redis:, rediss:, unix:, redis+sentinel:, rediss+sentinel:, "
     "redis+cluster:, rediss+cluster:, embedded, got 'valkey://h' (did you mean 'redis:'?)"),
    ("a password, and the scheme forgotten", "server: {url: 'u:s3cret@h:6379'}\n",
     "1:15: server.url: expected a URL with one of redis:, rediss:, unix:, redis+sentinel:, rediss+sentinel:, "
     "redis+cluster:, rediss+cluster:, embedded, got 'u:***@h:6379'"),
    ("a window that opens every so often", "maintenance: [{cron: 30s, for: 5s}]\n",
     "1:22: maintenance[0].cron: expected a cron expression, got '30s' (an interval opens no window"),
    ("interval 0", "queues: {orders: {dead: {every: 0s, keep: 1}}}\n",
     f"1:33: queues.orders.dead.every: {EVERY}, got '0s' (at least 10ms)"),
    ("cron 61", "queues: {orders: {dead: {every: '61 * * * *', keep: 1}}}\n",
     f"1:33: queues.orders.dead.every: {EVERY}, got '61 * * * *' (minute 61 is not within 0..59)"),
    ("cron with seconds", "queues: {orders: {dead: {every: '0 0 3 * * *', keep: 1}}}\n",
     f"1:33: queues.orders.dead.every: {EVERY}, got '0 0 3 * * *' "
     "(a cron expression has five fields: minute, hour, day, month, weekday (no seconds))"),
    ("a zone that does not exist", "queues: {orders: {dead: {every: '0 3 * * * Europe/Berln', keep: 1}}}\n",
     f"1:33: queues.orders.dead.every: {EVERY}, got '0 3 * * * Europe/Berln' "
     "(no time zone 'Europe/Berln'; did you mean 'Europe/Berlin'?)"),
    ("duplicate", "queues:\n  mail: {}\n  orders: {}\n  mail: {}\n",
     "4:3: queues: 'mail' is given twice, on lines 2 and 4 (keep one of them)"),
    ("tab", "queues:\n\torders: {}\n", "2:1: a tab indents this line (YAML takes spaces only)"),
    ("tab after spaces", "queues:\n  orders:\n  \tdead: {}\n",
     "3:3: a tab indents this line (YAML takes spaces only)"),
    ("an alias before its anchor", "queues: {a: *x}\n",
     "1:13: queues.a: found undefined alias 'x' (an alias *name stands after its anchor &name, in the same file)"),
    ("an alias inside its anchor", "queues: &a {x: *a}\n",
     "1:16: queues.x: an alias stands inside its own anchor (take it out)"),
    ("billion laughs", laughs(), "6:6: x-f: aliases make this more than 250,000 values (make it smaller)"),
    ("brackets without end", "[" * 5000, "1:62: [0]"),
    ("dashes without end", "- " * 5000, "1:123: [0]"),
    ("10 MB", "#" * (10 << 20), "1:1: the file has 10,485,760 bytes (at most 4,194,304; split it with include:)"),
    ("an unset variable", 'queues: {orders: {dead: {keep: "${NOPE}"}}}\n',
     "1:32: queues.orders.dead.keep: expected a value in NOPE, got '${NOPE}' "
     "(the environment variable NOPE is not set; set it, or write ${NOPE:-default})"),
    ("a variable that is no number", 'queues: {orders: {dead: {keep: "${WORD}"}}}\n',
     f"1:32: {COUNT.replace(', got', '')}, which is not what the reference gives, got '${{WORD}}'"),
    ("no reference", 'server: {client_name: "${1x}"}\n',
     "1:23: server.client_name: expected text, got '${1x}' "
     "(a reference is ${NAME} or ${NAME:-default}; write $${ for a literal ${)"),
    ("a reference without quotes in { }", "server: {password: ${P}}\n",
     "1:21: expected ',' or '}', but got '{' (inside { } and [ ] put a reference in quotes: \"${NAME}\")"),
    ("secret", "server: {password: hunter2}\n", f"1:20: server.password: {SECRET}"),
    ("secret as a default", 'server: {password: "${P:-hunter2}"}\n', f"1:20: server.password: {SECRET}"),
    ("secret with a reference", 'server: {password: "hunter2${P}"}\n', f"1:20: server.password: {SECRET}"),
    ("secret in a URL", "server: {url: 'redis://u:hunter2@h'}\n", f"1:15: server.url: {URL}"),
    ("secret in the state's URL", "state: {url: 'postgresql://u:hunter2@h/db'}\n", f"1:14: state.url: {URL}"),
    ("secret in a query", "state: {url: 'postgresql://h/db?user=u&password=hunter2'}\n", f"1:14: state.url: {URL}"),
    ("secret key", "archive:\n  remote:\n    url: s3://b\n    secret_access_key: hunter2\n",
     f"4:24: archive.remote.secret_access_key: {SECRET}"),
    ("a key in a note", "queues: {orders: {note: AKIAHUNTER2HUNTER2AB}}\n",
     "1:25: queues.orders.note: expected no secret written out (write ${NAME} and set NAME in the environment)"),
    ("endpoint without a scheme", "archive:\n  remote:\n    url: s3://b\n    endpoint: t3.storage.dev\n",
     "4:15: archive.remote.endpoint: expected http:// or https:// and a host, got 't3.storage.dev' "
     "(write https://t3.storage.dev)"),
    ("a trim of nothing", "queues: {orders: {dead: {}}}\n",
     "1:19: queues.orders.dead: expected keep or max_age, or both, got neither (or enabled: false)"),
    ("a misspelt choice", "queues: {orders: {stalled: {restart: exmpt}}}\n",
     "1:38: queues.orders.stalled.restart: expected exempt or count, got 'exmpt' (did you mean 'exempt'?)"),
    ("native with count", "queues: {orders: {stalled: {executor: native, restart: count}}}\n",
     "1:39: queues.orders.stalled: the native executor can't count leases of an earlier server life "
     "(restart: exempt, or executor: script)"),
    ("a lane that is no id", "queues: {orders: {settings: {lanes: {foo: {limit: 2}}}}}\n",
     "1:38: queues.orders.settings.lanes.foo: the key: expected a GRP id, got 'foo' "
     "(malformed id 'foo'; an id is three capitals and eleven base-62 digits, such as JOB0STBBIRAKHo or "
     "RUN0STBBIRAKHo)"),
    ("a list for a mapping", "queues: [a]\n", "1:1: queues: expected a mapping, got a list"),
    ("a list at the top", "- a\n", "1:1: expected a mapping: server, state, archive, defaults, queues ..."),
    ("two documents", "a: 1\n---\nb: 2\n",
     "2:1: a second document begins (one document a file: take out the --- lines)"),
    ("a tag", "queues: {a: !!python/object:x {}}\n",
     "1:13: queues.a: the tag !!python/object:x is not taken (take it out)"),
    ("a brace in a name", 'queues:\n  "a{b": {}\n',
     "2:3: queues.\"a{b\": expected the name of a queue, or a glob, got queue name 'a{b' has a brace "
     "(braces mark the Cluster slot; leave them out)"),
    ("a scheme", "server: {url: redi://x}\n", "1:15: server.url: expected a URL with one of redis:, rediss:, "),
    ("not UTF-8", b"note: \xff\n", "1:1: not UTF-8 text (save the file as UTF-8)"),
    ("NUL", "note: 'a\x00b'\n", "1:9: a control character (leave it out)"),
    ("half a surrogate pair", 'note: "\\ud83d"\n', "1:7: note: half of a surrogate pair (write the character itself)"),
    ("text without quotes", "queues: {a: {settings: {repeatables: {n: {every: 1d, template: 5}}}}}\n",
     "1:64: queues.a.settings.repeatables.n.template: expected text, got 5 (put it in quotes)"),
    ("a missing key", "queues: {a: {settings: {repeatables: {n: {every: 1d}}}}}\n",
     "1:39: queues.a.settings.repeatables.n.template: is missing (add it)"),
    ("YAML 1.1", "%YAML 1.1\n---\na: 1\n", "1:1: YAML 1.1 is not read (take the %YAML line out)"),
    ("an instant without an offset", "maintenance: [{from: 2026-03-01T22:00:00, for: 1h}]\n",
     "1:22: maintenance[0].from: expected an instant with its offset, such as 2026-03-01T22:00:00Z, got "
     "'2026-03-01T22:00:00'"),
    ("a window without an end", "maintenance: [{from: 2026-03-01T22:00:00Z}]\n",
     "1:15: maintenance[0]: expected from: with to: or for:, or cron: with for:"),
    ("a reference in a default", 'server: {client_name: "${A:-${WORD}}"}\n',
     "1:23: server.client_name: expected text, got '${A:-${WORD}}' "
     "(a reference can't stand in the default of another; set the variable instead)"),
    ("a typed reference in a default", 'queues: {orders: {dead: {keep: "${A:-${WORD}}"}}}\n',
     f"1:32: {COUNT} '${{A:-${{WORD}}}}' "
     "(a reference can't stand in the default of another; set the variable instead)"),
    ("an interval in odd digits", "queues: {orders: {stalled: {every: 010}}}\n",
     f"1:36: queues.orders.stalled.every: {EVERY}, got 10 (write 10s, or 10ms, 10m, 10h, 10d, as it is meant)"),
    ("a port out of range", "server: {url: 'redis://h:99999'}\n",
     "1:15: server.url: expected a server's URL, got 'redis://h:99999' ("),
    ("a database that is none", "server: {url: 'redis://h/x'}\n",
     "1:15: server.url: expected a server's URL, got 'redis://h/x' ("),
    ("sentinels without a name", "server: {url: 'redis+sentinel://h'}\n",
     "1:15: server.url: expected a server's URL, got 'redis+sentinel://h' ("),
    ("a state in memory", "state: {url: 'sqlite:///:memory:'}\n",
     "1:14: state.url: expected sqlite:///FILE, a file that outlives the process, got 'sqlite:///:memory:' ("),
    ("a database with too few slashes", "archive: {local: 'sqlite:/x.db'}\n",
     "1:18: archive.local: expected sqlite:///FILE, a file that outlives the process, got 'sqlite:/x.db' ("),
    ("no folder", "archive: {remote: {url: 'file:'}}\n",
     "1:25: archive.remote.url: expected file:DIR or s3://bucket/prefix, got 'file:' (name a folder)"),
    ("a listening port out of range", "http: {listen: '127.0.0.1:99999'}\n",
     "1:16: http.listen: expected address:port, such as 127.0.0.1:9119, got '127.0.0.1:99999'"),
    ("2^63", "queues: {orders: {dead: {keep: 9223372036854775808}}}\n", f"1:32: {COUNT} 9223372036854775808"),
    (".inf", "queues: {orders: {dead: {keep: .inf}}}\n", f"1:32: {COUNT} inf"),
    ("a date for a number", "queues: {orders: {dead: {keep: 2024-01-01}}}\n", f"1:32: {COUNT} '2024-01-01'"),
    ("no removals at all", "queues: {orders: {dead: {keep: 1, max_removals: 0}}}\n",
     "1:49: queues.orders.dead.max_removals: expected a whole number, 1 or more, got 0"),
    ("a day that never comes", "queues: {orders: {stalled: {every: '0 0 31 2 *'}}}\n",
     f"1:36: queues.orders.stalled.every: {EVERY}, got '0 0 31 2 *' (the day of month '31' is not one that can come)"),
    ("a zone that is a path", "queues: {orders: {stalled: {every: '0 3 * * * ../../etc/passwd'}}}\n",
     f"1:36: queues.orders.stalled.every: {EVERY}, got '0 3 * * * ../../etc/passwd' (no time zone"),
    ("an empty file", "", f"1:1: {NOTHING}"),
    ("only comments", "# queues:\n#   orders: {}\n", f"1:1: {NOTHING}"),
    ("only comments, with a tab", "#\tqueues:\r\n", f"1:1: {NOTHING}"),
    ("only white space", "\n  \n", f"1:1: {NOTHING}"),
    ("an empty document", "---\n", f"1:1: {NOTHING}"),
    ("null at the top", "\nnull\n", f"2:1: {NOTHING}"),
    ("text at the top", "hello\n", "1:1: expected a mapping: server, state, archive, defaults, queues ..."),
    ("UTF-16", "queues: {}\n".encode("utf-16"), "1:1: not UTF-8 text (save the file as UTF-8)"),
    ("a merge cycle", "queues: &a {<<: *a}\n",
     "1:17: queues.<<: an alias stands inside its own anchor (take it out)"),
    ("a list as a key", "queues: {[a]: 1}\n", "1:10: queues: a key must be text ("),
    ("the same name in quotes", "queues: {mail: {}, 'mail': {}}\n",
     "1:20: queues: 'mail' is given twice, on lines 1 and 1 (keep one of them)"),
    ("a merge of a number", "queues: {a: {<<: 5}}\n", "1:14: queues.a: << merges a mapping, or a list of them"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused_in_one_line(text: str | bytes, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SourceError) as caught:
        Layers(load([Path("c.yaml")], {"WORD": "many"})).check()
    said = str(caught.value)
    assert said.startswith(f"c.yaml:{line}")
    assert "\n" not in said
    assert "hunter2" not in said.lower()


def test_all_faults_are_listed_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("servr: {}\nqueues:\n  a: {dead: {keep: -1}}\n  b: {stalled: {every: 30}}\n")
    with pytest.raises(SourceError) as caught:
        load([file], {})
    assert str(caught.value).endswith("[and 2 more; `emq-ops validate` lists all]")
    places = [line.removeprefix(f"{file}:").split(" ")[0] for line in caught.value.lines()]
    assert places == ["1:1:", "3:20:", "4:24:"]


@pytest.mark.parametrize("text", ["{}\n", "queues:\n", "x-note: nothing yet\n"])
def test_a_file_that_says_so_may_configure_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert Layers(load([tmp_path / "c.yaml"], {})).literals == []


def test_fields_of_an_error(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("queues:\n  a: {dead: {keep: -1}}\n")
    with pytest.raises(SourceError) as caught:
        load([file], {})
    fault = caught.value
    assert (fault.mark.file, fault.mark.line, fault.mark.column) == (str(file), 2, 20) if fault.mark else False
    assert (fault.path, fault.expected, fault.got) == ("queues.a.dead.keep", "a whole number, 0 or more", "-1")
