(set -o pipefail) 2>/dev/null && set -o pipefail
slurmddp_waits='' slurmddp_waited='' slurmddp_status=0 slurmddp_highest=0
slurmddp_wait() { # The highest status of the launches in the background counts, as srun's of its tasks.
  case $slurmddp_waited in *" $1 "*) return 0 ;; esac
  slurmddp_waited="$slurmddp_waited $1 " && command wait "$1" && slurmddp_status=0 || slurmddp_status=$?
  [ "$slurmddp_status" -le "$slurmddp_highest" ] || slurmddp_highest=$slurmddp_status
}
wait() {
  case ${1:-} in
    '') eval "$slurmddp_waits" && command wait ;;
    -*) command wait "$@" ;;
    *) for slurmddp_pid; do slurmddp_wait "$slurmddp_pid"; done && return "$slurmddp_status" ;;
  esac
}
%b slurmddp_waits="$slurmddp_waits slurmddp_wait $!;";%b
eval "$slurmddp_waits"
return "$slurmddp_highest"
