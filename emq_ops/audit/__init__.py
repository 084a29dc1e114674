"""What died, when and why; what to do about it; and what no transition repairs.

`dead`, `restarts`, `life` and `whatif` read; `act`, `undo` and `rehydrate` change jobs, each change recorded in the
ledger; `doctor` judges the keyspace itself and needs no ledger.
"""
