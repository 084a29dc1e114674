"""``emq-ops schema``."""

from __future__ import annotations

import json
import sys

from emq_ops.cli.options import new_app
from emq_ops.config.schema import json_schema

app = new_app()


@app.command()
def schema() -> None:
    """Print the JSON Schema of the config file, for editors."""
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
