#!/bin/bash
# From nothing to a trained model on a two-node Slurm: what `make demo` runs. KEEP=1 leaves the cluster up.
set -euo pipefail

if [ -d "${FASHION:-}" ]; then
  job=(jobs/mnist.toml --name demo-fashion -- --data "$FASHION" --epochs 1)
else
  job=(jobs/mnist.toml --name demo-digits)
fi
rm -rf "jobs/${job[2]}" # this demo's own earlier run, if any

status=0
if slurmddp sandbox status --name demo >/dev/null 2>&1; then
  KEEP=1
  echo "The cluster of an earlier demo is up; it is used, and stays up."
else
  slurmddp sandbox up --name demo --nodes 2 --gpus-per-node 2 || status=$?
fi
case $status in
  0) [ -n "${KEEP:-}" ] || trap 'unset SLURM_CONF; slurmddp sandbox down --name demo' EXIT ;;
  3)
    echo "Without Slurm the same job runs on this machine alone:"
    exec slurmddp run "${job[@]:0:3}" --ntasks-per-node 4 "${job[@]:3}"
    ;;
  *) exit "$status" ;;
esac
exports=$(slurmddp sandbox env --name demo)
eval "$exports"
slurmddp submit "${job[@]:0:3}" --nodes 2 --gpus-per-node 2 --follow "${job[@]:3}" >/dev/null
echo "Everything of this run lies in jobs/${job[2]}: the model in model.pt, the output in logs/."
[ -z "${KEEP:-}" ] || echo "The cluster is still up: eval \"\$(slurmddp sandbox env --name demo)\", and later: slurmddp sandbox down --name demo"
