"""The archive of streams and dead jobs. Its format: README."""

import os

# Arrow reads this once, when pyarrow is first imported. Its usual allocator, mimalloc, keeps a heap for each thread:
# tens of megabytes, for a few hundred kilobytes in use, where many threads read and write segments.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
