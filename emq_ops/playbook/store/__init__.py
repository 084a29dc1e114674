"""Runs of playbooks in the state database: all of the SQL of playbooks."""
