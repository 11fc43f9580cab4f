# BASH_ENV of a launch. A bash that stands between srun and the ranks outlives the signals that are meant for them.
# USR2 would end its other children, too, so they ignore it; Python's handlers replace an inherited "ignore".
trap '' USR2
trap : USR1 TERM
if [ -n "${SLURMDDP_ATTACH_BASH_ENV:-}" ]; then . "$SLURMDDP_ATTACH_BASH_ENV"; fi
