#!/bin/sh
# HealthCheckProgram of slurm.conf: drains a node on which something is proven wrong; never one that could not be judged.
#   HealthCheckProgram=/etc/slurm/rdmadiag-health-check.sh
#   HealthCheckInterval=300
#   HealthCheckNodeState=ANY,CYCLE
# Slurm kills it after 60 s, and keeps a node from registering while it fails: so it ends in time and always with 0.
PATH=$PATH:/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin
node=${SLURMD_NODENAME:-$(hostname -s)}
reason=$(timeout 50 rdmadiag check --format slurm --fail-on error --window 5 --budget 30s 2>/dev/null)
if [ $? -eq 1 ] && [ -n "$reason" ]; then
    state=$(scontrol --oneliner show node "$node" 2>/dev/null)
    case $state in
    *DRAIN*) ;; # already; its reason stays
    *) scontrol update "NodeName=$node" State=DRAIN "Reason=$reason" ;;
    esac
fi
exit 0
