"""The recurring jobs as plain callables: policy and deadline in, report out. They have no clock or scheduler of their
own; the daemon, a playbook and a one-shot command all call the same.
"""
