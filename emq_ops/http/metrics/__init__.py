"""Metrics of a daemon as Prometheus reads them, from what it knows by itself (docs/monitoring.md)."""
