"""What deploying keeps in the state database: revisions, the journal of applies, the state lock; and the state as a
file. The rest of `deploy` knows no SQL."""
