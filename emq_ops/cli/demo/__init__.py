"""``emq-ops demo``: everything at once, for half a minute, on an embedded server of its own."""
