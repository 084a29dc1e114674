"""pyarrow, imported when something of it is used: who asks the local database or the log which streams there are, and
up to where, needs none of it, and it takes longer to import than all that such a command does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:

    class _Later:
        """A module that is imported when a name of it is asked for, which it has itself from then on."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module(self._name), name)
            setattr(self, name, found)
            return found

    pa, pc, pq = _Later("pyarrow"), _Later("pyarrow.compute"), _Later("pyarrow.parquet")

__all__ = ["pa", "pc", "pq"]
