"""The state database: who owns which queue, what each pass did, what died, when the server was away.

`Ledger` (`ledger.py`) opens it; the modules beside it hold one kind of record each.
"""
