"""The playbooks that ship with the tool, as data files."""
