"""What the YAML may hold: one frozen type a section, with its keys, defaults and help texts. Passes bring their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emq_ops.passes.frame.contract import Pass
from emq_ops.passes.registry import PASSES
from emq_ops.policy.kinds import LANE, SECRET, SPAN, STREAM, SWITCH, TEXT, URL, ZONE, choice, duration, whole
from emq_ops.policy.models import ArchivePolicy
from emq_ops.policy.options import Listed, Named, Nested, keys, more, option

_TEXTS = Listed(TEXT, single=True)
_ONE_OR_MORE = whole(1, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class Section:
    """The base. `note:` is a remark that survives."""

    note: str | None = option(TEXT, None, "a remark; nothing reads it")


@dataclass(frozen=True, kw_only=True)
class PassSection(Section):
    """What stands beside the fields of a pass's policy."""

    enabled: bool = option(SWITCH, True, "false: this pass does not run here")


@dataclass(frozen=True, kw_only=True)
class LaneSection(Section):
    """One lane (group) of a queue."""

    limit: int | None = option(_ONE_OR_MORE, None, "jobs of this lane in flight at once")
    weight: int | None = option(_ONE_OR_MORE, None, "weight of the lane")
    paused: bool | None = option(SWITCH, None, "nothing is claimed from the lane")


@dataclass(frozen=True, kw_only=True)
class RepeatableSection(Section):
    """One repeatable: a template that becomes a job every so often. The pass `promote` fires it."""

    every: int | None = option(SPAN, None, "the period; the first job is due at once")
    cron: str | None = option(TEXT, None, "instead of every: five fields, minute to weekday")
    zone: str | None = option(ZONE, None, "time zone of cron; UTC")
    lane: str | None = option(LANE, None, "where its jobs wait (EchoMQ's Consumer claims lanes only); else flat")
    template: str = option(TEXT, help="the payload of each job")


@dataclass(frozen=True, kw_only=True)
class SettingsSection(Section):
    """Server-side settings. Only what is written here is managed."""

    paused: bool | None = option(SWITCH, None, "nothing is claimed from the queue")
    concurrency: int | None = option(_ONE_OR_MORE, None, "jobs in flight at once")
    rate: int | None = option(whole(1, 1_000_000_000), None, "the queue's `max` rate")
    lanes: dict[str, LaneSection] = option(Named(LANE, Nested(LaneSection)), {}, "lanes by GRP id")
    repeatables: dict[str, RepeatableSection] = option(
        Named(TEXT, Nested(RepeatableSection)), {}, "repeatables by name"
    )


def shape_of(one: Pass) -> Nested | Named:
    """How the section of a pass is read."""
    each = Nested(one.policy, PassSection, loose=True)
    return Named(STREAM, each) if one.many else each


ARCHIVE_FIELDS = tuple(name for name in keys(ArchivePolicy) if name != "redact")
"""Fields of an archiving policy that `archive:` may say for every section that does not."""


def archived(policy: type[Any]) -> bool:
    """Whether a policy holds what `archive:` may say for all that is archived."""
    return keys(ArchivePolicy).keys() <= keys(policy).keys()


@dataclass(frozen=True, kw_only=True)
class QueueSection(Section):
    """What holds for a queue, a glob of queues, or (under `defaults`) all of them. `passes`: section -> its values."""

    passes: dict[str, Any] = more(lambda: {one.section: shape_of(one) for one in PASSES})
    settings: SettingsSection | None = option(Nested(SettingsSection), None)
    protect: bool = option(SWITCH, False, "every destructive verb on this queue is refused")


@dataclass(frozen=True, kw_only=True)
class QueueEntry(QueueSection):
    """An entry under `queues`."""

    optional: bool = option(SWITCH, False, "a glob that may match nothing")


@dataclass(frozen=True, kw_only=True)
class ServerSection(Section):
    """Which Valkey."""

    url: str = option(URL, "embedded", "embedded, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://")
    username: str | None = option(TEXT, None)
    password: str | None = option(SECRET, None)
    ca: str | None = option(TEXT, None, "file of the certificate authority")
    cert: str | None = option(TEXT, None, "file of the client's certificate")
    key: str | None = option(TEXT, None, "file of the client's private key")
    verify: bool = option(SWITCH, True, "the server's certificate and host name are checked")
    connect_timeout: int = option(SPAN, 5_000, "how long connecting may take")
    timeout: int = option(SPAN, 10_000, "how long one reply may take")
    sentinel_username: str | None = option(TEXT, None)
    sentinel_password: str | None = option(SECRET, None)
    client_name: str | None = option(TEXT, None)
    accept_versions: tuple[str, ...] = option(_TEXTS, ("echomq:3.*",), "wire versions taken")


@dataclass(frozen=True, kw_only=True)
class StateSection(Section):
    """Where revisions, runs and deaths are kept."""

    url: str = option(URL, "sqlite:///.emq/state.db", "sqlite:/// or postgresql://")
    ca: str | None = option(TEXT, None, "file of the authority by which PostgreSQL's certificate is verified")
    retain: int = option(duration(3_600_000), 90 * 86_400_000, "how long runs and deaths are kept")
    group: str | None = option(TEXT, None, "a group of this host that may read and write all files, beside their owner")


@dataclass(frozen=True, kw_only=True)
class RemoteSection(Section):
    """The object store."""

    url: str | None = option(URL, None, "file:DIR or s3://bucket/prefix")
    bucket: str | None = option(TEXT, None, "with `prefix`, instead of url")
    prefix: str | None = option(TEXT, None)
    endpoint: str | None = option(URL, None, "else AWS_ENDPOINT_URL_S3")
    region: str | None = option(TEXT, None, "else AWS_REGION")
    access_key_id: str | None = option(SECRET, None)
    secret_access_key: str | None = option(SECRET, None)
    session_token: str | None = option(SECRET, None)
    profile: str | None = option(TEXT, None)
    storage_class: str | None = option(TEXT, None)
    addressing: str = option(choice("auto", "path", "virtual"), "auto")
    ca: str | None = option(TEXT, None)
    timeout: int = option(SPAN, 30_000, "how long one request may take")


@dataclass(frozen=True, kw_only=True)
class ArchiveSection(Section):
    """Where archived records go. Fields of an archiving policy given here (`usual`) hold for every section that does
    not say otherwise."""

    local: str = option(URL, "sqlite:///.emq/archive.db", "the local database")
    local_ca: str | None = option(TEXT, None, "as state.ca, for a local database in PostgreSQL")
    remote: RemoteSection | None = option(Nested(RemoteSection), None)
    sign: str | None = option(SECRET, None, "a key, as ${NAME}: each commit of the log is signed with it, and checked")
    usual: dict[str, Any] = more(lambda: {name: keys(ArchivePolicy)[name].shape for name in ARCHIVE_FIELDS})
    upkeep: dict[str, Any] = more(lambda: {one.section: shape_of(one) for one in PASSES if one.of_archive})


@dataclass(frozen=True, kw_only=True)
class WindowSection(Section):
    """A maintenance window: leases that lapse in it are recovered without counting."""

    queues: str = option(TEXT, "*", "a queue or a glob")
    start: str | None = option(TEXT, None, "an instant, 2026-03-01T22:00:00Z", key="from")
    until: str | None = option(TEXT, None, "an instant", key="to")
    cron: str | None = option(TEXT, None, "when windows begin, instead of from and to")
    zone: str = option(ZONE, "UTC", "time zone of cron")
    length: int | None = option(SPAN, None, "how long, with cron or from", key="for")


@dataclass(frozen=True, kw_only=True)
class DaemonSection(Section):
    """How `emq-ops up` runs."""

    threads: int = option(whole(1, 256), 8, "passes at once that talk to Valkey alone")
    archive_threads: int = option(whole(1, 256), 8, "passes at once that may wait for a store")
    lease: int = option(duration(100), 10_000, "a leader that is silent for this long is replaced")
    stop_within: int = option(SPAN, 10_000, "SIGTERM: everything is given up within")
    ready_file: str | None = option(TEXT, None, "exists while the daemon runs")
    backoff: int = option(SPAN, 300_000, "a failing pass is retried at the latest after")
    drift: int | None = option(duration(1_000), None, "how often it is looked where the server is not as applied")


@dataclass(frozen=True, kw_only=True)
class HttpSection(Section):
    """Health, metrics and pages."""

    listen: str | None = option(TEXT, None, "address:port; nothing: no listener")
    token: str | None = option(SECRET, None, "every page but /livez and /readyz wants it; needed where others can ask")
    metrics: str = option(choice("token", "open"), "token", "open: /metrics asks for no token")
    metrics_queues: int = option(
        whole(1), 1000, "so many queues have series of their own; the others are told together"
    )
    hosts: tuple[str, ...] = option(_TEXTS, (), "names it is asked for by, beside addresses and localhost")


@dataclass(frozen=True, kw_only=True)
class PlanSection(Section):
    """Saved plans."""

    sign: str | None = option(SECRET, None, "a key, as ${NAME}: a saved plan is signed with it, and applied only so")


@dataclass(frozen=True, kw_only=True)
class MovedSection(Section):
    """An entry of `queues` under another name: its policies go on there, and nothing is destroyed and created."""

    old: str = option(TEXT, help="the name, or the glob, that was applied", key="from")
    new: str = option(TEXT, help="what it is called now; a glob has the wildcards of the old one", key="to")


@dataclass(frozen=True, kw_only=True)
class RuleSection(Section):
    """What a plan must keep to, of each queue: in the language of `when`, about queue, stalled, dead, streams ..."""

    when: str = option(TEXT, "true", "of which queues, such as queue.name matches 'prod-*'")
    must: str = option(TEXT, help="what must hold of them, such as dead.archive and dead.keep >= 1000")
    say: str | None = option(TEXT, None, "why")


@dataclass(frozen=True, kw_only=True)
class AlertRuleSection(Section):
    """What is to be told of queues or the server, in the language of `when` (docs/monitoring.md has the names)."""

    name: str = option(TEXT, help="a word; one of emq-ops' own rules is replaced by it")
    when: str = option(TEXT, help="such as dead > 100, or server.memory > 90%; false: never")
    lasting: int = option(duration(0), 0, "how long it must hold", key="for")
    queues: str = option(TEXT, "*", "a queue or a glob")
    severity: str = option(choice("page", "ticket", "info"), "ticket")
    repeat: int | None = option(SPAN, None, "told again while it holds; nothing: once")
    say: str | None = option(TEXT, None, "what it means, and what to do")


@dataclass(frozen=True, kw_only=True)
class HeartbeatSection(Section):
    """A dead man's switch: asked for as long as a daemon does its work; whoever waits for it tells when it stops."""

    url: str = option(URL, help="an http or https URL; secrets in it as ${NAME}")
    every: int = option(duration(1_000), 60_000)


@dataclass(frozen=True, kw_only=True)
class AlertSection(Section):
    """Where alert events are sent."""

    url: str = option(URL, help="an apprise URL; secrets in it as ${NAME}")
    on: tuple[str, ...] = option(_TEXTS, (), "kinds of events; none: all alerts")


@dataclass(frozen=True, kw_only=True)
class Config(Section):
    """A whole config file."""

    server: ServerSection = option(Nested(ServerSection), ServerSection())
    state: StateSection = option(Nested(StateSection), StateSection())
    archive: ArchiveSection | None = option(Nested(ArchiveSection), None)
    maintenance: tuple[WindowSection, ...] = option(Listed(Nested(WindowSection)), ())
    defaults: QueueSection = option(Nested(QueueSection), QueueSection())
    queues: dict[str, QueueEntry] = option(Named(TEXT, Nested(QueueEntry)), {})
    daemon: DaemonSection = option(Nested(DaemonSection), DaemonSection())
    http: HttpSection = option(Nested(HttpSection), HttpSection())
    plan: PlanSection = option(Nested(PlanSection), PlanSection())
    plan_rules: tuple[RuleSection, ...] = option(Listed(Nested(RuleSection)), (), "what every plan must keep to")
    moved: tuple[MovedSection, ...] = option(Listed(Nested(MovedSection)), (), "entries of `queues` that were renamed")
    alerts: tuple[AlertSection, ...] = option(Listed(Nested(AlertSection)), ())
    alert_rules: tuple[AlertRuleSection, ...] = option(Listed(Nested(AlertRuleSection)), (), "beside emq-ops' own")
    heartbeat: HeartbeatSection | None = option(Nested(HeartbeatSection), None)
    include: tuple[str, ...] = option(_TEXTS, (), "files read before this one")
