#!/bin/bash
# Machines of Google Compute Engine. Needs jq and the program gcloud with credentials, project and zone. The image
# is of the family taskwork. The offer is the type of machine, with the suffix -spot for a preemptible one. The name of
# a machine contains its request, so that a repeated call creates nothing.
#
# A machine that has powered itself off is billed for its disk until it is deleted. Only unlisted machines are gone: all
# others count as running, and are deleted after some minutes without a node.
set -euo pipefail
cd "$(dirname "$0")"
: "${TASKWORK_ZK:?says where ZooKeeper is: host:port,host:port}" "${TASKWORK_CLUSTER:?}"

quota='QUOTA_EXCEEDED|ZONE_RESOURCE_POOL_EXHAUSTED|RESOURCE_EXHAUSTED'
# A label of a machine allows lowercase letters, digits, - and _. The metadata distinguishes clusters with equal labels.
label() { tr 'A-Z.' 'a-z_' <<< "$1"; }

case $1 in
create) # OFFER COUNT KEY
    data=$(mktemp)
    trap 'rm -f "$data" "$data.err"' EXIT
    { echo '#!/bin/bash'
      printf '%s=%q\n' TASKWORK_ZK "$TASKWORK_ZK" TASKWORK_CLUSTER "$TASKWORK_CLUSTER" TASKWORK_LABELS "$TASKWORK_LABELS" \
          TASKWORK_ZK_AUTH /etc/taskwork/credentials TASKWORK_ZK_TLS_CA /etc/taskwork/ca.pem NOTICE gcp
      echo 'TASKWORK_MACHINE=$(hostname -s)'
      cat user-data.txt; } > "$data"
    spot=()
    [ "${2%-spot}" = "$2" ] || spot=(--provisioning-model=SPOT --instance-termination-action=DELETE)
    for number in $(seq "$3"); do
        name=tw-$4-$number
        if ! gcloud compute instances create "$name" --machine-type="${2%-spot}" --image-family=taskwork "${spot[@]}" \
            --labels="taskwork-cluster=$(label "$TASKWORK_CLUSTER"),taskwork-key=$4" --metadata="taskwork-cluster=$TASKWORK_CLUSTER,taskwork-offer=$2" \
            --metadata-from-file="startup-script=$data" --async --quiet > /dev/null 2> "$data.err"; then
            if ! grep -q 'already exists' "$data.err"; then
                cat "$data.err" >&2
                # Machines of an earlier call with this request may exist.
                if [ "$number" = 1 ] && grep -Eq "$quota" "$data.err"; then exit 75; fi
                exit 1
            fi
        fi
        echo "{\"id\": \"$name\", \"offer\": \"$2\", \"state\": \"requested\", \"key\": \"$4\"}"
    done
    ;;
list)
    gcloud compute instances list --filter="labels.taskwork-cluster=$(label "$TASKWORK_CLUSTER")" --format=json |
        jq -c --arg cluster "$TASKWORK_CLUSTER" --argjson states '{"PROVISIONING": "requested", "STAGING": "requested",
            "STOPPING": "ending", "SUSPENDING": "ending"}' '
            # A local time with its offset, such as 2026-05-01T03:00:00.000-07:00, in milliseconds since 1970.
            def ms: [capture("^(?<at>.{19})[.0-9]*((?<sign>[-+])(?<hours>..):(?<minutes>..)|Z)$")][0] | if . then
                    (((.hours // "0" | tonumber) * 60 + (.minutes // "0" | tonumber)) * 60) as $off
                    | ((.at + "Z" | fromdateiso8601) + (if .sign == "-" then $off else -$off end)) * 1000
                else null end;
            .[] | (.metadata.items // [] | map({(.key): .value}) | add) as $data
            | select($data["taskwork-cluster"] == $cluster)
            | {id: .name, offer: $data["taskwork-offer"], key: .labels["taskwork-key"],
               state: ($states[.status] // "running"), created_ms: (.creationTimestamp | if . then ms else null end)}'
    ;;
terminate) # NAME…
    # It waits for the deletion, which continues without it.
    timeout 30 gcloud compute instances delete "${@:2}" --quiet > /dev/null || [ $? = 124 ]
    ;;
*)
    echo "usage: $0 create OFFER COUNT KEY | list | terminate NAME…" >&2
    exit 78
    ;;
esac
