"""A plan drawn as Markdown, for a pull request. Pure; texts of strangers call nobody."""

from __future__ import annotations

import re

from emq_ops.deploy.model import SIGNS, Plan
from emq_ops.deploy.render import effect_words, interrupted_words, shown_fields, summary, value
from emq_ops.protocol.errors import one_line


def markdown(plan: Plan) -> str:
    """For a pull request: a heading, a table, details folded away."""
    lines = [f"### emq-ops plan: {summary(plan)}", ""]
    if words := interrupted_words(plan):
        lines += [f"> **Interrupted:** {_md(words)}", ""]
    if plan.steps or plan.drift:
        lines += ["| | resource | change | effect |", "|---|---|---|---|"]
    for step in plan.steps:
        changes = "<br>".join(_md(line) for line in shown_fields(step)) or "removed"
        effect = [_md(words)] if (words := effect_words(step)) else []
        effect += [f"*{_md(note)}*" for note in step.notes]
        effect += [f"**could lose data:** {_md(reason)}" for reason in step.loss]
        lines.append(f"| `{SIGNS[step.op]}` | {_md(step.address)} | {changes} | {'<br>'.join(effect)} |")
    for d in plan.drift:
        lines.append(f"| `!` | {_md(d.address)} | applied {_md(value(d.applied))}, live {_md(value(d.live))} | drift |")
    lines += [""] if plan.steps or plan.drift else []
    lines += [f"- warning: {_md(text)}" for text in plan.warnings]
    lines += [f"- **refused:** {_md(str(refusal))}" for refusal in plan.refusals]
    if plan.losses:
        lines.append("- **Data could be lost: it takes `--allow-loss` to apply this.**")
    ids = [(step.address, step.effect["ids"]) for step in plan.steps if step.effect.get("ids")]
    for address, victims in ids:
        lines += ["", f"<details><summary>{len(victims)} dead jobs of {_md(address)} would go</summary>", ""]
        listed = [_quiet(one_line(victim)).replace("`", "'") for victim in victims]
        lines += ["```", *listed, "```", "", "</details>"]
    return "\n".join(lines) + "\n"


_CALLS = re.compile(r"@|#(?=\d)|(?<=:)//|\bwww\b|\bGH(?=-)", re.IGNORECASE)
_COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b")


def _quiet(text: str) -> str:
    """`text` in which a forge sees no user, issue, commit or address: a mark of no width breaks them."""
    text = _COMMIT.sub(lambda found: re.sub(r"(.{6})(?=.)", "\\1\u200b", found[0]), text)
    return _CALLS.sub(lambda found: found[0] + "\u200b", text)


def _md(text: str) -> str:
    escaped = (
        _quiet(one_line(text)).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    )
    return re.sub(r"([|`*_\[\]])", r"\\\1", escaped)
