"""What the state database and the archive's local database share: SQLite (one host) or PostgreSQL (several).

`engine.Database` is an open one with its transactions, `faults` names what goes wrong, `migrations` brings a schema up,
`statements` holds what SQLAlchemy says differently for the two. Nothing here knows a table of ours.
"""
