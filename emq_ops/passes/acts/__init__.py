"""Acts of people on dead jobs: which jobs are meant, requeueing and removing them, and bringing removed ones back."""
