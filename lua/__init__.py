"""The transitions, as data files; ``emq_ops.protocol.scripts`` loads them."""
