"""The daemon: runs the applied revision's passes on time, leads queues, follows new revisions (``emq-ops up``)."""
