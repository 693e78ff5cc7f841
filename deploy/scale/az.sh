#!/bin/bash
# Machines of Azure. Needs jq and the program az with credentials. They are created in a separate resource group, from the
# image $TASKWORK_AZ_IMAGE. The offer is the size, with the suffix -spot for a preemptible one. The name of a machine
# contains its request, so that a repeated call creates nothing.
#
# A machine that has powered itself off is billed until it is deleted. Only unlisted machines are gone: all others count
# as running, and are deleted after some minutes without a node.
set -euo pipefail
cd "$(dirname "$0")"
: "${TASKWORK_ZK:?says where ZooKeeper is: host:port,host:port}" "${TASKWORK_CLUSTER:?}"
group=${TASKWORK_AZ_GROUP:-taskwork}

quota='QuotaExceeded|SkuNotAvailable|AllocationFailed|OverconstrainedAllocationRequest'

case $1 in
create) # OFFER COUNT KEY
    data=$(mktemp)
    trap 'rm -f "$data" "$data.err"' EXIT
    { echo '#!/bin/bash'
      printf '%s=%q\n' TASKWORK_ZK "$TASKWORK_ZK" TASKWORK_CLUSTER "$TASKWORK_CLUSTER" TASKWORK_LABELS "$TASKWORK_LABELS" \
          TASKWORK_ZK_AUTH /etc/taskwork/credentials TASKWORK_ZK_TLS_CA /etc/taskwork/ca.pem NOTICE azure
      echo 'TASKWORK_MACHINE=$(hostname -s)'
      cat user-data.txt; } > "$data"
    spot=()
    [ "${2%-spot}" = "$2" ] || spot=(--priority Spot --eviction-policy Delete)
    for number in $(seq "$3"); do
        name=tw-$4-$number
        if ! az vm create --resource-group "$group" --name "$name" --size "${2%-spot}" --image "${TASKWORK_AZ_IMAGE:?}" \
            "${spot[@]}" --custom-data "$data" --public-ip-address '' --nic-delete-option Delete --os-disk-delete-option Delete \
            --tags "taskwork-cluster=$TASKWORK_CLUSTER" "taskwork-key=$4" "taskwork-offer=$2" --no-wait --only-show-errors \
            > /dev/null 2> "$data.err"; then
            cat "$data.err" >&2
            if [ "$number" = 1 ] && grep -Eq "$quota" "$data.err"; then exit 75; fi
            exit 1
        fi
        echo "{\"id\": \"$name\", \"offer\": \"$2\", \"state\": \"requested\", \"key\": \"$4\"}"
    done
    ;;
list)
    az vm list --resource-group "$group" --show-details --output json |
        jq -c --arg cluster "$TASKWORK_CLUSTER" '.[] | select(.tags["taskwork-cluster"] == $cluster)
            | (.powerState // "") as $power
            | {id: .name, offer: .tags["taskwork-offer"], key: .tags["taskwork-key"],
               created_ms: (.timeCreated | if . then sub("[.+].*"; "Z") | fromdateiso8601 * 1000 else null end),
               state: (if .provisioningState == "Deleting" then "ending" elif $power == "VM starting" then "requested"
                   elif .provisioningState == "Creating" and $power == "" then "requested" else "running" end)}'
    ;;
terminate) # NAME…
    for name in "${@:2}"; do
        az vm delete --resource-group "$group" --name "$name" --yes --no-wait
    done
    ;;
*)
    echo "usage: $0 create OFFER COUNT KEY | list | terminate NAME…" >&2
    exit 78
    ;;
esac
