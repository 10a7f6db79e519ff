#!/bin/bash
# One machine's part in a training on several: torchrun, begun again when it ended by an error.
#
#     FIRST=first-machine NODES=2 deploy/node.sh RUN.toml --out /shared/runs/my-run
#
# on each of them. FIRST is the machine at which they meet, NODES their number; all arguments are those of `transduce train`.
# PROCESSES on this machine: a number, or `gpu` for one on each GPU (as given). PORT: 29400. RUN_ID: one word for all of them.
# torchrun restarts its processes by itself, but ends where the first machine cannot be reached for a minute: then this begins
# it again, TRIES times (10). Any option of torchrun can be given as a variable: PET_LOCAL_ADDR for --local-addr.
set -u
: "${FIRST:?the machine at which all meet}" "${NODES:?the number of machines}"
if (($# == 0)); then
    echo "usage: FIRST=first-machine NODES=2 $0 RUN.toml --out DIR [OPTION...]" >&2
    exit 2
fi
command=(
    "${PYTHON:-python}" -m torch.distributed.run
    --nnodes "$NODES" --nproc-per-node "${PROCESSES:-gpu}" --max-restarts 3
    --rdzv-backend c10d --rdzv-endpoint "$FIRST:${PORT:-29400}" --rdzv-id "${RUN_ID:-transduce}"
    -m transduce train "$@" --resume
)

# A signal to this script is one to torchrun, whose processes write a checkpoint and end.
child=
stopped=
trap 'stopped=yes; [[ -n $child ]] && kill -TERM "$child" 2>/dev/null' TERM INT HUP

for ((try = 1; ; try++)); do
    "${command[@]}" &
    child=$!
    wait "$child"
    status=$?
    # What wait returns when a signal came is the signal's; torchrun itself goes on until its processes have ended.
    while [[ -n $stopped ]] && kill -0 "$child" 2>/dev/null; do
        wait "$child"
        status=$?
    done
    if ((status == 0)) || [[ -n $stopped ]] || ((try == ${TRIES:-10})); then exit "$status"; fi
    echo "$0: torchrun ended with status $status: beginning again ($try of ${TRIES:-10})" >&2
    # In the background, so that a signal is heard at once.
    sleep "${PAUSE:-10}" &
    child=$!
    wait "$child"
    if [[ -n $stopped ]]; then exit "$status"; fi
done
