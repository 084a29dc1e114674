"""What operators write, read: YAML as a tree in which every value knows its place, and expressions."""
