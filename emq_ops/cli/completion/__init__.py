"""Completion for bash, zsh and fish: scripts without Python in them, made once from the tree of commands."""
