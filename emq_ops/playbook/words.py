"""The keys of the language: what a play and a task may say, and what Ansible's other words are here."""

from __future__ import annotations

PLAY_KEYS = {
    "name": "what the play is for",
    "queues": "queue name, pattern (`*`, `?`) or a list of them; needed",
    "named": "true: the play runs only on queues that `--queues` names, never on all that `queues` takes",
    "vars": "variables; `-e` on the command line is above them",
    "tasks": "the tasks, in order; needed",
    "handlers": "tasks that run at the end, once, where a changed task notified them by name, also after a failure",
    "tags": "tags that every task of the play has",
    "serial": "queues a batch: a number, a share such as 20%, or a list of these",
    "max_fail_percentage": "the play ends when more than this share of a batch failed",
}
TASK_KEYS = {
    "name": "what the task is for",
    "when": "expression(s) that must be true, else the task is skipped",
    "loop": "a list; the task runs once for each `item`",
    "loop_control": "`loop_var` and `index_var`: other names than `item`",
    "register": "the name under which the result is kept",
    "until": "expression that ends the retries; the result is under the name of `register`",
    "retries": "how often it is tried again (default 3)",
    "delay": "how long to wait in between (default 5s)",
    "tags": "tags for --tags and --skip-tags; `always` and `never` mean what they say",
    "vars": "variables of this task",
    "notify": "name(s) of handlers to run when this task changed something",
}
BLOCK_KEYS = {
    "name": "what the block is for",
    "block": "tasks",
    "rescue": "tasks that run where one of the block failed",
    "always": "tasks that run in any case",
    "when": "applies to every task of the block",
    "tags": "for every task of the block",
    "vars": "for every task of the block",
}
INCLUDE_KEYS = {
    "name": "",
    "include": "a file of tasks, inside the playbook's folder",
    "when": "",
    "tags": "",
    "vars": "",
}
LOOP_CONTROL_KEYS = {"loop_var": "name of the item", "index_var": "name of its number, from 0"}

MAGIC = {
    "queue": "the name of the queue",
    "play_queues": "the names of all queues of the play",
    "check_mode": "whether this is a check run",
    "run_id": "the id of the run",
    "failed_task": "in `rescue`: the name of the task that failed",
    "failed_result": "in `rescue`: its result",
}
"""Variables of the language, which can't be set."""
RESERVED = {
    *MAGIC,
    "lookup",
    "range",
    "loop",
    "self",
    "true",
    "false",
    "none",
    "True",
    "False",
    "None",
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
}

ELSEWHERE = {
    "hosts": "write 'queues:'",
    "gather_facts": "leave it out; there are no facts to gather",
    "become": "leave it out; rights come from the server's ACL user",
    "ignore_errors": "use block and rescue",
    "failed_when": "use 'register' and a 'fail' or 'assert' task",
    "changed_when": "leave it out; modules know what they changed",
    "any_errors_fatal": "write 'max_fail_percentage: 0'",
    "with_items": "write 'loop:'",
    "with_list": "write 'loop:'",
    "with_dict": "write 'loop: \"{{ mapping | dictsort }}\"'",
    "include_tasks": "write 'include:'",
    "import_tasks": "write 'include:'",
    "import_playbook": "write 'include:'",
    "include_vars": "use 'vars' and -e @FILE",
    "vars_files": "use 'vars' and -e @FILE",
    "roles": "write 'include:'",
    "pre_tasks": "put them first in 'tasks'",
    "post_tasks": "put them last in 'tasks'",
    "run_once": "use a play whose 'queues' is one queue",
    "delegate_to": "use a play of its own",
    "connection": "leave it out; the server comes from the config or --url",
    "environment": "leave it out; read it with lookup('env', NAME)",
    "strategy": "leave it out; a task runs on all queues of a batch before the next one does",
    "forks": "leave it out",
    "async": "leave it out",
    "poll": "use 'wait_for'",
    "no_log": "leave it out; a value that lookup('env', NAME) read is never shown or stored",
    "listen": "notify a handler by its name",
    "meta": "leave it out; handlers run at the end of the play",
    "action": "write the module's name as the key",
    "args": "write the options below the module's name",
    "environment_vars": "use lookup('env', NAME)",
}
"""Words of Ansible that are not of this language, and what to do instead."""
