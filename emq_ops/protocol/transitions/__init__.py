"""Every transition of the wire, as functions whose first argument is a Queue (docs/protocol.md, *Transitions*)."""
