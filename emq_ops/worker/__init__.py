"""The worker: a consumer of one queue, and what its handlers are given."""

from emq_ops.worker.backoff import Backoff
from emq_ops.worker.batch import BatchConsumer, BatchHandler, BatchSettings
from emq_ops.worker.cancel import CancelAnswer, Cancelled, CancelToken, JobCancelled
from emq_ops.worker.consumer import Consumer
from emq_ops.worker.handlers import Handler, load_handler
from emq_ops.worker.job import Job, LeaseLostError
from emq_ops.worker.settings import ConsumerSettings
from emq_ops.worker.stream_consumer import StreamConsumer, StreamHandler
from emq_ops.worker.stream_settings import StreamEntry, StreamSettings
from emq_ops.worker.verdicts import Dead, Delay, Ok, Retry

__all__ = [
    "Backoff",
    "BatchConsumer",
    "BatchHandler",
    "BatchSettings",
    "CancelAnswer",
    "CancelToken",
    "Cancelled",
    "Consumer",
    "ConsumerSettings",
    "Dead",
    "Delay",
    "Handler",
    "Job",
    "JobCancelled",
    "LeaseLostError",
    "Ok",
    "Retry",
    "StreamConsumer",
    "StreamEntry",
    "StreamHandler",
    "StreamSettings",
    "load_handler",
]
