"""How large a benchmark is: as its options say, or tiny, to show that it runs (`make bench-smoke`)."""

from __future__ import annotations

import argparse


def sized(parser: argparse.ArgumentParser, **tiny: object) -> argparse.Namespace:
    """The options of this process's command line; `tiny`: their defaults with ``--smoke``."""
    parser.add_argument("--smoke", action="store_true", help="tiny: shows that it runs; its figures say nothing")
    if parser.parse_known_args()[0].smoke:
        parser.set_defaults(**tiny)
    return parser.parse_args()
