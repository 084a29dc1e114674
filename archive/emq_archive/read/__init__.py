"""Reading the archive: records in one order, and SQL over them."""

from emq_archive.read.archive import Archive, Looked

__all__ = ["Archive", "Looked"]
