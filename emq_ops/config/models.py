"""What the YAML may hold: one model a section, unknown keys refused, built-in defaults in one place."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from emq_ops.config.fields import (
    Count,
    Every,
    Lane,
    Listed,
    Positive,
    Secret,
    Share,
    Size,
    Span,
    Stream,
    Switch,
    Text,
    Texts,
    Url,
    Zone,
    choice,
    duration,
    whole,
)
from emq_ops.policy.schedule import Schedule, Trigger


class Section(BaseModel):
    """The base: strict, closed, immutable. `note:` is a comment that survives."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    note: Text | None = Field(default=None, description="a remark; nothing reads it")


class Task(Section):
    """When a recurring pass runs."""

    enabled: Switch = Field(default=True, description="false: this pass does not run here")
    every: Every = Field(
        default="30s", validate_default=True, description="an interval, or a cron expression and a time zone"
    )
    jitter: Annotated[int, duration()] = Field(
        default=0, description="each run is put off by a part of it, the same on every host"
    )
    max_late: Annotated[int, duration(1_000)] | None = Field(
        default=None, description="a run that could not start within it is missed, not run late"
    )
    timeout: Span | None = Field(default=300_000, description="how long one run may take")
    coalesce: Switch = Field(default=True, description="runs that were all missed become one")
    max_removals: Positive | None = Field(
        default=None, description="a run that would remove more stops and raises an alert"
    )

    @property
    def schedule(self) -> Schedule:
        """The timetable of this task."""
        trigger: Trigger = self.every
        return Schedule(trigger, self.jitter, self.max_late, self.timeout, self.coalesce)


class Stalled(Task):
    """The sweep of lapsed leases."""

    every: Every = Field(default="30s", validate_default=True, description="how often lapsed leases are looked for")
    max_stalled: Annotated[int, whole(1, 1_000_000)] = Field(
        default=1, description="this many counted stalls dead-letter a job"
    )
    limit: Annotated[int, whole(1, 5_000)] = Field(
        default=100, description="jobs a slice; slices follow until nothing is due"
    )
    lease: Span = Field(default=30_000, description="the longest lease that workers of this queue take")
    restart: Annotated[str, choice("exempt", "count")] = Field(
        default="exempt", description="whether a lease lost in an interruption counts"
    )
    max_exempt: Annotated[int, whole(0, 1_000_000)] = Field(default=3, description="exemptions in a row for one job")
    executor: Annotated[str, choice("script", "native")] = Field(
        default="script", description="native: the server module's own command"
    )
    max_share: Share | None = Field(default=None, description="stop at a burst above this share of what is active")


class Redact(Section):
    """Fields that must not be stored as they are."""

    drop: Texts = Field(default=(), description="left out")
    hash: Texts = Field(default=(), description="stored as a keyed hash")
    salt: Secret | None = Field(default=None, description="the key of the hashes")


class Archiving(Section):
    """How records are archived, dead jobs and streams alike."""

    segment: Size = Field(default=64 << 20, description="a segment is shipped when it is this large")
    ship_after: Span = Field(default=60_000, description="and at the latest after this long")
    trim_after: Annotated[str, choice("remote", "local")] = Field(
        default="remote", description="what must hold a record before it is trimmed"
    )
    local_keep: Span | None = Field(default=None, description="shipped rows leave the local database after this long")
    expire_after: Span | None = Field(default=None, description="segments older than this go, by `archive expire`")
    compact_grace: Span = Field(default=86_400_000, description="merged segments are kept for this long")
    redact: Redact | None = Field(default=None, description="dropped or hashed before anything is stored")


class Dead(Archiving, Task):
    """The trim of dead-lettered jobs."""

    every: Every = Field(default="10m", validate_default=True, description="how often the dead set is trimmed")
    keep: Count | None = Field(default=None, description="exactly this many dead jobs stay")
    max_age: Span | None = Field(default=None, description="dead jobs older than this go")
    age_by: Annotated[str, choice("seen", "minted")] = Field(
        default="seen", description="age since first seen dead, or since the job was made"
    )
    archive: Switch = Field(
        default=True, description="into the archive first; left out: true where there is an archive section"
    )


class StreamSection(Archiving, Task):
    """The archive of one event stream."""

    every: Every = Field(default="5s", validate_default=True, description="how often the stream is folded")
    keep: Count | None = Field(default=None, description="exactly this many records stay in Valkey")
    max_age: Span | None = Field(default=None, description="records older than this leave Valkey")
    groups: Annotated[str, choice("respect", "ignore")] = Field(
        default="respect", description="records that a consumer group needs stay"
    )


class LaneSettings(Section):
    """One lane (group) of a queue."""

    limit: Annotated[int, whole(1, 1_000_000)] | None = Field(
        default=None, description="jobs of this lane in flight at once"
    )
    weight: Annotated[int, whole(1, 1_000_000)] | None = Field(default=None, description="weight of the lane")
    paused: Switch | None = Field(default=None, description="nothing is claimed from the lane")


class RepeatableSettings(Section):
    """One repeatable: a template that becomes a job every so often."""

    every: Span = Field(description="the period")
    template: Text = Field(description="the payload of each job")


class Settings(Section):
    """Server-side settings. Only what is written here is managed."""

    paused: Switch | None = Field(default=None, description="nothing is claimed from the queue")
    concurrency: Annotated[int, whole(1, 1_000_000)] | None = Field(default=None, description="jobs in flight at once")
    rate: Annotated[int, whole(1, 1_000_000_000)] | None = Field(default=None, description="the queue's `max` rate")
    lanes: dict[Lane, LaneSettings] = Field(default_factory=dict, description="lanes by GRP id")
    repeatables: dict[Text, RepeatableSettings] = Field(default_factory=dict, description="repeatables by name")


class QueueSection(Section):
    """What holds for a queue, a glob of queues, or (under `defaults`) for all of them."""

    stalled: Stalled | None = None
    dead: Dead | None = None
    streams: dict[Stream, StreamSection] = Field(default_factory=dict)
    settings: Settings | None = None
    protect: Switch = Field(default=False, description="every destructive verb on this queue is refused")


class QueueEntry(QueueSection):
    """An entry under `queues`."""

    optional: Switch = Field(default=False, description="a glob that may match nothing")


class Server(Section):
    """Which Valkey."""

    url: Url = Field(
        default="embedded", description="embedded, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"
    )
    username: Text | None = None
    password: Secret | None = None
    ca: Text | None = Field(default=None, description="file of the certificate authority")
    cert: Text | None = Field(default=None, description="file of the client's certificate")
    key: Text | None = Field(default=None, description="file of the client's private key")
    verify: Switch = Field(default=True, description="the server's certificate and host name are checked")
    connect_timeout: Span = Field(default=5_000, description="how long connecting may take")
    timeout: Span = Field(default=10_000, description="how long one reply may take")
    sentinel_username: Text | None = None
    sentinel_password: Secret | None = None
    client_name: Text | None = None
    accept_versions: Texts = Field(default=("echomq:3.*",), description="wire versions taken")


class State(Section):
    """Where revisions, runs and deaths are kept."""

    url: Url = Field(default="sqlite:///.emq/state.db", description="sqlite:/// or postgresql://")
    retain: Annotated[int, duration(3_600_000)] = Field(
        default=90 * 86_400_000, description="how long runs and deaths are kept"
    )


class Remote(Section):
    """The object store."""

    url: Url | None = Field(default=None, description="file:DIR or s3://bucket/prefix")
    bucket: Text | None = Field(default=None, description="with `prefix`, instead of url")
    prefix: Text | None = None
    endpoint: Url | None = Field(default=None, description="else AWS_ENDPOINT_URL_S3")
    region: Text | None = Field(default=None, description="else AWS_REGION")
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    profile: Text | None = None
    storage_class: Text | None = None
    addressing: Annotated[str, choice("auto", "path", "virtual")] = "auto"
    ca: Text | None = None
    timeout: Span = Field(default=30_000, description="how long one request may take")


class Archive(Section):
    """Where archived records go. Stream fields given here hold for every stream that does not say otherwise."""

    local: Url = Field(default="sqlite:///.emq/archive.db", description="the local database")
    remote: Remote | None = None
    segment: Size | None = None
    ship_after: Span | None = None
    trim_after: Annotated[str, choice("remote", "local")] | None = None
    local_keep: Span | None = None
    expire_after: Span | None = None
    compact_grace: Span | None = None


class Window(Section):
    """A maintenance window: leases that lapse in it are recovered without counting."""

    queues: Text = Field(default="*", description="a queue or a glob")
    start: Text | None = Field(default=None, alias="from", description="an instant, 2026-03-01T22:00:00Z")
    until: Text | None = Field(default=None, alias="to", description="an instant")
    cron: Text | None = Field(default=None, description="when windows begin, instead of from and to")
    zone: Zone = Field(default="UTC", description="time zone of cron")
    length: Span | None = Field(default=None, alias="for", description="how long, with cron or from")


class Daemon(Section):
    """How `emq-ops up` runs."""

    threads: Annotated[int, whole(1, 256)] = Field(default=8, description="passes at once that talk to Valkey alone")
    archive_threads: Annotated[int, whole(1, 256)] = Field(
        default=8, description="passes at once that may wait for a store"
    )
    lease: Annotated[int, duration(100)] = Field(
        default=10_000, description="a leader that is silent for this long is replaced"
    )
    stop_within: Span = Field(default=10_000, description="SIGTERM: everything is given up within")
    ready_file: Text | None = Field(default=None, description="exists while the daemon runs")
    backoff: Span = Field(default=300_000, description="a failing pass is retried at the latest after")


class Http(Section):
    """Health, metrics and pages."""

    listen: Text | None = Field(default=None, description="address:port; nothing: no listener")
    token: Secret | None = None


class Alert(Section):
    """Where alert events are sent."""

    url: Url = Field(description="an apprise URL; secrets in it as ${NAME}")
    on: Texts = Field(default=(), description="kinds of events; none: all alerts")


class Config(Section):
    """A whole config file."""

    server: Server = Field(default_factory=Server)
    state: State = Field(default_factory=State)
    archive: Archive | None = None
    maintenance: Annotated[tuple[Window, ...], Listed] = Field(default=())
    defaults: QueueSection = Field(default_factory=QueueSection)
    queues: dict[Text, QueueEntry] = Field(default_factory=dict)
    daemon: Daemon = Field(default_factory=Daemon)
    http: Http = Field(default_factory=Http)
    alerts: Annotated[tuple[Alert, ...], Listed] = Field(default=())
    include: Texts = Field(default=(), description="files read before this one")
