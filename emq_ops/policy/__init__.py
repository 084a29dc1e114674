"""What passes are told to do: one frozen type for each, and the schedules, durations and sizes in them."""
