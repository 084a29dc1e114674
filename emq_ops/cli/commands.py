"""Where each command is, and what the help says of it; listing them imports none of them."""

from __future__ import annotations

from emq_ops.cli.lazy import Table

COMMANDS: Table = {
    # See `lazy.Table`.
    "acl": ("acl", "Print the least rights of a role, as a line of a server's aclfile."),
    "alert": ("", "Rules that hold, silences, and a test of where alerts go."),
    "alert ls": (
        "alert:ls",
        "List the rules that hold, queue by queue: pending until they have held for long enough, then firing.",
    ),
    "alert silence": (
        "alert:silence",
        "Tell nothing of a rule for a while; it is judged all the same, and told at the end if it holds yet.",
    ),
    "alert test": ("alert_test:send_test", "Send a message to each messenger of the config, and say which took it."),
    "alert unsilence": ("alert:unsilence", "End a silence."),
    "apply": ("apply", "Show the plan, ask, and do it: settings on the server, then one revision."),
    "archive": ("archive", "Keep what streams and dead sets let go: fold, look, read, prove, query, bring back."),
    "audit": ("", "What died, when and why; what restarts did; what another threshold would have done."),
    "audit dead": (
        "audit_dead:dead",
        "Group the dead jobs by queue, cause and normalised error; requeue or remove a selection.",
    ),
    "audit job": ("audit:one_job", "Tell the whole life of one job: ledger, archive, live row."),
    "audit restarts": (
        "audit:restarts",
        "Tell for each interruption what was in flight, recovered, exempted, died or vanished.",
    ),
    "audit what-if": (
        "audit:what_would",
        "Replay the ledger: who would have lived or died at another stall threshold.",
    ),
    "bug-report": (
        "bug_report",
        "Write versions, the config with its references, facts of the server, the last runs and alerts into one file.",
    ),
    "completion": (
        "completion.command",
        "Print the script that completes commands, queues, runs, contexts and playbooks in a shell.",
    ),
    "config": ("config", "The config, as it holds."),
    "conformance": (
        "conformance",
        "Replay recorded transitions against a server and compare replies and whole keyspaces.",
    ),
    "context": ("contexts", "Names for servers and configs, kept in ~/.config/emq-ops, without secrets."),
    "dead": ("", "List dead jobs, put them back to wait, take them away."),
    "dead ls": ("dead_list:ls", "List dead jobs, a row a job; a line for each error that several queues share."),
    "dead remove": (
        "dead:remove",
        "Take dead jobs away, whole; one run over all queues, and `emq-ops undo RUN` brings them back.",
    ),
    "dead requeue": (
        "dead:requeue",
        "Put dead jobs back to wait; one run over all queues, with one undo of those that nobody claimed since.",
    ),
    "demo": (
        "demo.command",
        "Show it all in half a minute: workers that succeed, fail, hang and are killed, the daemon at work.",
    ),
    "destroy": ("destroy", "Take the schedules away."),
    "doctor": ("doctor", "Find what no transition repairs, and with --fix mend what is safe."),
    "drift": ("drift", "Say where the live server is not what was applied."),
    "flow": ("flow", "Add flows from a file, see how one stands."),
    "history": ("history", "List the revisions, newest first."),
    "events": ("events", "Follow what a queue's workers publish: progress, cancellations, what batch workers settled."),
    "hold": (
        "hold",
        "Hold queues: for that long, or until `release`, no pass runs on them, by a daemon or by hand.",
    ),
    "import": ("import_", "Write a config from the settings that stand on a live server."),
    "init": ("init", "Look at a server, ask six things at most, and write an annotated config."),
    "job": ("", "Find jobs, see one, act on some."),
    "job cancel": (
        "job_acts:cancel",
        "Ask for jobs' cancellation: waiting ones are removed, a worker that holds one is told.",
    ),
    "job delay": (
        "job_delay:delay",
        "Put jobs that are in hand or scheduled (back) on the schedule, without an attempt.",
    ),
    "job edit": (
        "job_acts:edit",
        "Put another payload in the place of a job's, before a retry; the old one is kept, and `undo` puts it back.",
    ),
    "job extend": (
        "job_acts:extend",
        "Give the lease of a job in flight more time, from now on: its worker is slow, and not gone.",
    ),
    "job find": (
        "job:find",
        "Find jobs over all queues: by id wherever it is or was, also in the state; or by a text.",
    ),
    "job logs": ("job:logs", "Print the log lines of a job, oldest first, as they are."),
    "job ls": (
        "job:ls",
        "List the jobs of queues: by id, those in flight by their lease, scheduled ones by when they are due.",
    ),
    "job move": (
        "job_move:move",
        "Put waiting jobs into another queue or lane, in order, by their ids or by a condition; one run, one undo.",
    ),
    "job remove": (
        "job_acts:remove",
        "Take waiting jobs away, by their ids or by a condition on what is in them; one run, one undo.",
    ),
    "job requeue": ("job_acts:requeue", "Put dead jobs back to wait, by their ids."),
    "job show": (
        "job_show:show",
        "Show one job: where it is, row, lease, lane, its flow's tree, payload, logs, life, and what one may do with"
        " it.",
    ),
    "lane": ("", "See the lanes of a queue, bound them, stop them."),
    "lane limit": ("lane:limit", "Set how many jobs of a lane may be in flight at once."),
    "lane ls": ("lane_show:ls", "List the lanes of queues, those first in which most jobs wait."),
    "lane pause": ("lane:pause", "Stop lanes: nothing is claimed from them; what is in flight goes on."),
    "lane reassign": (
        "job_move:reassign",
        "Put the waiting jobs of a lane into another lane, in order; one run, one undo.",
    ),
    "lane resume": ("lane:resume", "Let paused lanes go on."),
    "lane show": (
        "lane_show:show",
        "Show lanes: what waits in each, since when, and why nobody takes it, if nobody does.",
    ),
    "lane weight": ("lane:weight", "Set how many jobs of a lane are claimed each time that its turn comes."),
    "maintenance": (
        "maintenance",
        "Windows in which lapsed leases are recovered without counting: deploys, migrations.",
    ),
    "plan": ("plan", "Compare the config with what is applied and with the live server."),
    "play": ("play", "Run a playbook on queues."),
    "ps": ("ps", "Show each task: its leader, last and next run, how late, failures in a row; or the living daemons."),
    "queue": ("", "See queues, stop them, let them go on, empty them."),
    "queue drain": (
        "queue_removing:drain",
        "Take the waiting jobs of one queue away, flat and in lanes; what is in flight, and the dead, stay.",
    ),
    "queue ls": ("queue:ls", "List queues: what waits, runs and died, since when, and what is wrong."),
    "queue obliterate": (
        "queue_removing:obliterate",
        "Take one whole paused queue away: jobs, lanes, settings, repeatables.",
    ),
    "queue pause": ("queue_pausing:pause", "Stop queues: nothing is claimed from them; what is in flight goes on."),
    "queue resume": ("queue_pausing:resume", "Let paused queues go on."),
    "queue show": (
        "queue_show:show",
        "Show queues: what waits and runs, what to do next, its lanes, repeatables, policy, last passes, deaths.",
    ),
    "rehydrate": (
        "rehydrate",
        "Bring removed jobs back from the ledger or the archive, as they were when they were last dead.",
    ),
    "release": ("release", "End the hold of queues."),
    "rollback": ("rollback", "Go back to an earlier revision: its content becomes a new one."),
    "runs": ("runs", "What passes did: when, on which queue, by whom, how much."),
    "schema": (
        "schema",
        "Print the JSON Schema of the config file, for editors; or of a command's JSON (`schema output NOUN`).",
    ),
    "show": ("show", "Print a revision: what it changed, and what it says."),
    "state": ("state_commands", "The state: its lock, its journal, and moving it."),
    "stream": ("stream", "See the event streams of a queue, read, follow, add to them."),
    "sweep": ("sweep", "Recover lapsed leases of queues, and dead-letter what stalled too often."),
    "top": (
        "top",
        "Watch queues: depths, rates, what is oldest, deaths, lag, next runs, what is wrong; pause, requeue.",
    ),
    "trim": ("trim", "Delete dead jobs beyond what the policy keeps, each with its row, logs and flow books."),
    "undo": (
        "undo",
        "Take back what a run did: removed jobs come back, whole; requeued ones that still wait are dead again.",
    ),
    "up": ("up", "Run the applied revision: every pass on time, one leader a queue."),
    "validate": ("validate", "Check the config: every fault in a line of its own."),
    "worker": ("", "Put a job into a queue, work it from the shell, cancel a job."),
    "worker cancel": (
        "worker_cancel:cancel_jobs",
        "Ask for jobs' cancellation: waiting ones are removed, a worker that holds one is told.",
    ),
    "worker enqueue": ("worker_enqueue:enqueue_job", "Put a job into a queue, and print its id."),
    "worker ls": (
        "worker_list:ls",
        "List who works: leases by queue, and the clients that are parked until something is to claim.",
    ),
    "worker stream": (
        "worker_stream:stream",
        "Handle the entries of an event stream, as one consumer of a group, until SIGTERM or Ctrl-C.",
    ),
    "worker run": (
        "worker:run",
        "Work a queue with a Python function until SIGTERM or Ctrl-C; a second one ends it at once.",
    ),
}

GROUPS = {
    "See": ("top", "queue", "lane", "job", "flow", "dead", "stream", "events", "worker", "ps", "runs", "alert"),
    "Act": ("hold", "release", "maintenance", "sweep", "trim", "promote", "undo", "rehydrate", "play"),
    "Deploy": (
        *("init", "validate", "plan", "apply", "up", "drift", "history", "show", "rollback", "destroy", "import"),
        *("config", "schema", "context"),
    ),
    "Archive": ("archive",),
    "Investigate": ("audit", "doctor", "bug-report"),
    "Maintain": ("state", "acl", "conformance", "demo"),
}
"""The nouns of the help, by what one is about to do."""
VERBS = {
    "requeue": "dead requeue",
    "remove": "dead remove",
    "pause": "queue pause",
    "resume": "queue resume",
    "drain": "queue drain",
    "obliterate": "queue obliterate",
    "cancel": "job cancel",
    "find": "job find",
    "ls": "queue ls",
    "enqueue": "worker enqueue",
}
"""Verbs without their noun, and where they are."""
