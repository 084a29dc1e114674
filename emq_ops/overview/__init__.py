"""How queues stand: one bounded look at many of them, what is wrong with one, and what to do next."""
