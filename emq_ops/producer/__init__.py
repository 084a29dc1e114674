"""The way in for an application: jobs into queues, one or many, now or later, once a key, in lanes and flows.

docs/producer.md shows it. What stands here is the package's surface; the rest is not.
"""

from emq_ops.producer.aio import AsyncProducer
from emq_ops.producer.naming import lane_of
from emq_ops.producer.payloads import BYTES, JSON, MSGPACK, Codec
from emq_ops.producer.producer import Limits, Producer
from emq_ops.producer.specs import AddedFlow, FlowSpec, JobSpec
from emq_ops.protocol.errors import EmqError
from emq_ops.protocol.transitions.enqueue import Dedup, Enqueued
from emq_ops.protocol.transitions.flows import ParentPolicy
from emq_ops.protocol.transitions.repeat import Repeatable

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "AddedFlow",
    "AsyncProducer",
    "Codec",
    "Dedup",
    "EmqError",
    "Enqueued",
    "FlowSpec",
    "JobSpec",
    "Limits",
    "ParentPolicy",
    "Producer",
    "Repeatable",
    "lane_of",
]
