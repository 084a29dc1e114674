"""Every transition of the wire, as functions whose first argument is a Queue (protocol page, *Transitions*)."""
