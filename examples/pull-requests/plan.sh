#!/bin/sh
# What a branch would change, as Markdown on stdout, from its config alone: no variable is read, nobody is asked.
# plan.sh [CONFIG...]   Exit 0: planned, with changes or without; anything else: a fault of the config, told on stderr.
set -u

# What a config may name at all. Set both in the settings of the runner to what is yours.
export EMQ_OPS_ENV_ALLOW="${EMQ_OPS_ENV_ALLOW-EMQ_*,PGPASSWORD}"
export EMQ_OPS_HOST_ALLOW="${EMQ_OPS_HOST_ALLOW-localhost,127.0.0.1,*.internal.example}"

[ "$#" -gt 0 ] || set -- config.yaml
for file in "$@"; do
    set -- "$@" -c "$file"
    shift
done

emq-ops "$@" validate --allow-unset >&2 || exit
emq-ops "$@" plan --offline --markdown
code=$?
[ "$code" -eq 2 ] && exit 0
exit "$code"
