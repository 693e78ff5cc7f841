#!/bin/bash
# Machines of Google Compute Engine, by the program gcloud, which has its credentials, project and zone, and jq. The image
# is of the family taskwork. The offer is the type of machine, with -spot at its end for one that may be taken away. A
# machine is called after its request, so that a repeated call makes nothing new.
set -euo pipefail
cd "$(dirname "$0")"
: "${TASKWORK_ZK:?says where ZooKeeper is: host:port,host:port}" "${TASKWORK_CLUSTER:?}"

quota='QUOTA_EXCEEDED|ZONE_RESOURCE_POOL_EXHAUSTED|RESOURCE_EXHAUSTED'
# A label of a machine takes lowercase letters, digits, - and _.
label() { tr 'A-Z.' 'a-z_' <<< "$1"; }

case $1 in
create) # OFFER COUNT KEY
    data=$(mktemp)
    trap 'rm -f "$data" "$data.err"' EXIT
    { echo '#!/bin/bash'
      printf '%s=%q\n' TASKWORK_ZK "$TASKWORK_ZK" TASKWORK_CLUSTER "$TASKWORK_CLUSTER" TASKWORK_LABELS "$TASKWORK_LABELS" \
          TASKWORK_ZK_AUTH /etc/taskwork/credentials TASKWORK_ZK_TLS_CA /etc/taskwork/ca.pem NOTICE gcp
      echo 'TASKWORK_MACHINE=$(hostname -s)'
      cat user-data.sh; } > "$data"
    spot=()
    [ "${2%-spot}" = "$2" ] || spot=(--provisioning-model=SPOT --instance-termination-action=DELETE)
    for number in $(seq "$3"); do
        name=tw-$4-$number
        if ! gcloud compute instances create "$name" --machine-type="${2%-spot}" --image-family=taskwork "${spot[@]}" \
            --labels="taskwork-cluster=$(label "$TASKWORK_CLUSTER"),taskwork-key=$4" --metadata="taskwork-offer=$2" \
            --metadata-from-file="startup-script=$data" --async --quiet > /dev/null 2> "$data.err"; then
            if ! grep -q 'already exists' "$data.err"; then
                cat "$data.err" >&2
                # Earlier ones of this request may be there.
                if [ "$number" = 1 ] && grep -Eq "$quota" "$data.err"; then exit 75; fi
                exit 1
            fi
        fi
        echo "{\"id\": \"$name\", \"offer\": \"$2\", \"state\": \"requested\", \"key\": \"$4\"}"
    done
    ;;
list)
    gcloud compute instances list --filter="labels.taskwork-cluster=$(label "$TASKWORK_CLUSTER")" --format=json |
        jq -c --argjson states '{"PROVISIONING": "requested", "STAGING": "requested", "RUNNING": "running",
            "REPAIRING": "running", "STOPPING": "ending", "SUSPENDING": "ending"}' '.[]
            | {id: .name, offer: (.metadata.items[] | select(.key == "taskwork-offer") | .value),
               state: ($states[.status] // "gone"), key: .labels["taskwork-key"]}'
    ;;
terminate) # NAME…
    gcloud compute instances delete "${@:2}" --quiet > /dev/null
    ;;
*)
    echo "usage: $0 create OFFER COUNT KEY | list | terminate NAME…" >&2
    exit 78
    ;;
esac
