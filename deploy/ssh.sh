#!/bin/bash
# A training on several machines, begun by ssh from one place; what they say comes here, and a signal to this is one to all.
#
#     deploy/ssh.sh "first-machine second-machine" RUN.toml --out /shared/runs/my-run
#
# They meet at the first. Each runs deploy/node.sh of this checkout, in this folder, which all must have by the same name, with
# an environment of Python at .venv, or where PYTHON says. PROCESSES, PORT, RUN_ID and TRIES are passed on, as is OMP_NUM_THREADS.
set -u
if (($# < 2)); then
    echo "usage: $0 \"first-machine second-machine\" RUN.toml --out DIR [OPTION...]" >&2
    exit 2
fi
read -ra hosts <<<"$1"
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
given=("FIRST=${hosts[0]}" "NODES=${#hosts[@]}" "PYTHON=${PYTHON:-$root/.venv/bin/python}")
for name in PROCESSES PORT RUN_ID TRIES OMP_NUM_THREADS; do
    if [[ -n ${!name:-} ]]; then given+=("$name=${!name}"); fi
done
printf -v command ' %q' env "${given[@]}" "$root/deploy/node.sh" "$@"
printf -v folder '%q' "$PWD"

children=()
trap 'kill -TERM "${children[@]}" 2>/dev/null' TERM INT
for host in "${hosts[@]}"; do
    # With a terminal of its own (-tt), the other side hears a hang-up when this side ends.
    ssh -tt -o ServerAliveInterval=15 "$host" "cd $folder && exec$command" </dev/null &
    children+=($!)
done
worst=0
for child in "${children[@]}"; do
    wait "$child"
    status=$?
    while kill -0 "$child" 2>/dev/null; do
        wait "$child"
        status=$?
    done
    if ((status > worst)); then worst=$status; fi
done
exit "$worst"
