# The end of a machine's start script, for aws.sh, gcloud.sh and az.sh, which put the variables in front of it. The image
# has the program and the files with credentials; see docs/operating.md.
# If ZooKeeper requires certificates (ssl.clientAuth=need), the image has one for its nodes.
if [ -e /etc/taskwork/node.cert ]; then
    export TASKWORK_ZK_TLS_CERT=/etc/taskwork/node.cert TASKWORK_ZK_TLS_KEY=/etc/taskwork/node.key
fi
export TASKWORK_ZK TASKWORK_ZK_AUTH TASKWORK_ZK_TLS_CA TASKWORK_CLUSTER TASKWORK_MACHINE TASKWORK_LABELS
runuser -u taskwork -- tsp node --listen 0.0.0.0:7420 --advertise "$(hostname -I | cut -d ' ' -f 1)" \
    --notice "$NOTICE" --idle-exit 30m || true
# The node has left, or could not be started: a machine without a node costs the same. On Azure and Google a machine that is
# off is still billed, until the controller deletes it.
poweroff
