"""Health, metrics and a page, over HTTP."""
