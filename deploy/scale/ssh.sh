#!/bin/sh
# Existing machines, accessed by ssh: those in the file hosts, one per line.
#
# The folder taken has one file for each machine in use, written before the node is started, so a repeated call
# starts nothing twice. On each host the node runs as a unit of the user's systemd, which must continue after
# ssh has ended: loginctl enable-linger. The id of a machine is the name of its host.
#
# The folder is next to this file, or in the state folder of a systemd service. Files with credentials and certificates
# that the variables TASKWORK_ZK_AUTH and TASKWORK_ZK_TLS_* name must be at the same places on all hosts.
set -eu
cd "$(dirname "$0")"
hosts=$PWD/hosts
cd "${STATE_DIRECTORY:-.}"
# A dry run changes nothing, not even files.
[ -z "${TASKWORK_DRY_RUN:-}" ] || [ -d taken ] || exit 0
mkdir -p taken
exec 9> taken/.lock
flock 9

: "${TASKWORK_ZK:?says where ZooKeeper is: host:port,host:port}"
ssh="ssh -n -o BatchMode=yes -o ConnectTimeout=5"
unit=taskwork-node.service
variables=
for name in TASKWORK_ZK_AUTH TASKWORK_ZK_TLS_CA TASKWORK_ZK_TLS_CERT TASKWORK_ZK_TLS_KEY; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || variables="$variables --setenv=$name=$value"
done

case $1 in
create) # OFFER COUNT KEY
    found=$(grep -l "^$2 $4 " taken/* 2> /dev/null | wc -l)
    for host in $(cat "$hosts"); do
        [ "$found" -lt "$3" ] || break
        [ ! -e "taken/$host" ] || continue
        echo "$2 $4 $(date +%s)000" > "taken/$host"
        found=$((found + 1))
    done
    [ "$found" -gt 0 ] || { echo "every host is taken" >&2; exit 75; }
    for file in $(grep -l "^$2 $4 " taken/*); do
        host=$(basename "$file")
        # A running unit of this name is not started again.
        $ssh "$host" systemctl --user is-active --quiet $unit || $ssh "$host" systemd-run --user --unit=$unit --collect \
            --setenv=TASKWORK_ZK="$TASKWORK_ZK" --setenv=TASKWORK_CLUSTER="$TASKWORK_CLUSTER" \
            --setenv=TASKWORK_MACHINE="$host" --setenv=TASKWORK_LABELS="$TASKWORK_LABELS" $variables \
            tsp node --listen 0.0.0.0:7420 --advertise "$host" --idle-exit 30m >&2
        echo "{\"id\": \"$host\", \"offer\": \"$2\", \"state\": \"running\", \"key\": \"$4\"}"
    done
    ;;
list)
    for file in taken/*; do
        [ -e "$file" ] || continue
        host=$(basename "$file")
        read -r offer key created < "$file"
        # The state of a host without an answer is unknown, so nothing is listed then.
        state=$($ssh "$host" "systemctl --user is-active $unit || true") || { echo "$host does not answer" >&2; exit 1; }
        case $state in
        active | reloading | activating) state=running ;;
        deactivating) state=ending ;;
        *) state=gone ;;
        esac
        echo "{\"id\": \"$host\", \"offer\": \"$offer\", \"state\": \"$state\", \"key\": \"$key\", \"created_ms\": $created}"
        # The host is free again, some minutes after its node was started.
        if [ "$state" = gone ] && [ -z "${TASKWORK_DRY_RUN:-}" ] && [ "$(find "$file" -mmin +5)" ]; then rm "$file"; fi
    done
    ;;
terminate) # HOST…
    shift
    for host in "$@"; do
        $ssh "$host" "systemctl --user stop --no-block $unit || true" >&2
    done
    ;;
*)
    echo "usage: $0 create OFFER COUNT KEY | list | terminate HOST…" >&2
    exit 78
    ;;
esac
