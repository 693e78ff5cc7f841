#!/bin/bash
# Machines of Amazon EC2. Needs jq and the program aws with credentials. They are created from a launch template with
# the image, the network, the security group and an instance profile; a machine that powers off must be terminated
# (InstanceInitiatedShutdownBehavior). The offer is the type of instance, with the suffix -spot for a preemptible one.
set -euo pipefail
cd "$(dirname "$0")"
: "${TASKWORK_ZK:?says where ZooKeeper is: host:port,host:port}" "${TASKWORK_CLUSTER:?}"
template=${TASKWORK_AWS_TEMPLATE:-taskwork}

# Nothing was done; machines may be available later.
quota='InsufficientInstanceCapacity|InstanceLimitExceeded|VcpuLimitExceeded|SpotMaxPriceTooLow|MaxSpotInstanceCountExceeded'
# Only terminated machines are gone: a stopped machine is billed for its disk, and is terminated because it has no node.
states='{"pending": "requested", "shutting-down": "ending", "stopping": "ending", "terminated": "gone"}'
lines='.[] | .Instances[] | (.Tags // [] | map({(.Key): .Value}) | add) as $tag
    | {id: .InstanceId, offer: $tag["taskwork-offer"], state: ($states[.State.Name] // "running"), key: $tag["taskwork-key"],
       created_ms: (.LaunchTime | sub("[.+].*"; "Z") | fromdateiso8601 * 1000)}'

case $1 in
create) # OFFER COUNT KEY
    data=$(mktemp)
    trap 'rm -f "$data" "$data.err"' EXIT
    { echo '#!/bin/bash'
      printf '%s=%q\n' TASKWORK_ZK "$TASKWORK_ZK" TASKWORK_CLUSTER "$TASKWORK_CLUSTER" TASKWORK_LABELS "$TASKWORK_LABELS" \
          TASKWORK_ZK_AUTH /etc/taskwork/credentials TASKWORK_ZK_TLS_CA /etc/taskwork/ca.pem NOTICE aws
      echo 'token=$(curl -sX PUT http://169.254.169.254/latest/api/token -H "X-aws-ec2-metadata-token-ttl-seconds: 60")'
      echo 'TASKWORK_MACHINE=$(curl -sH "X-aws-ec2-metadata-token: $token" http://169.254.169.254/latest/meta-data/instance-id)'
      cat user-data.txt; } > "$data"
    market=()
    [ "${2%-spot}" = "$2" ] || market=(--instance-market-options MarketType=spot)
    tags="{Key=taskwork-cluster,Value=$TASKWORK_CLUSTER},{Key=taskwork-key,Value=$4},{Key=taskwork-offer,Value=$2}"
    # The client token makes a repeated call idempotent.
    aws ec2 run-instances --launch-template "LaunchTemplateName=$template" --instance-type "${2%-spot}" --count "$3" \
        --client-token "$4" --user-data "file://$data" "${market[@]}" --tag-specifications "ResourceType=instance,Tags=[$tags]" \
        --output json 2> "$data.err" | jq -c --argjson states "$states" "[.] | $lines" || {
        cat "$data.err" >&2
        if grep -Eq "$quota" "$data.err"; then exit 75; fi
        exit 1
    }
    ;;
list)
    aws ec2 describe-instances --filters "Name=tag:taskwork-cluster,Values=$TASKWORK_CLUSTER" --output json |
        jq -c --argjson states "$states" ".Reservations | $lines"
    ;;
terminate) # ID…
    aws ec2 terminate-instances --instance-ids "${@:2}" --output json > /dev/null
    ;;
*)
    echo "usage: $0 create OFFER COUNT KEY | list | terminate ID…" >&2
    exit 78
    ;;
esac
