"""The YAML file: read, checked, layered, and turned into what passes and plans take."""
