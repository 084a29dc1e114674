"""From a config to a running revision: plan, apply, drift, history, rollback.

`document` says what is wanted as plain JSON, `live` reads what is, `planner` compares (pure), `apply` does it under the
state's lock and leaves one revision.
"""
