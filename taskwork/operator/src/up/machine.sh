# The part of a cluster on one machine: nodes, and on one machine ZooKeeper. `taskwork up` and `taskwork down` run it as
# VERB CLUSTER [ARGUMENT…]. All files are in one folder. Machines may share it, so those of processes are in a folder of the
# machine.
set -eu
mask=$(umask)
umask 077
verb=$1
folder=$HOME/.local/share/taskwork/$2
host=$(uname -n)
shift 2
mkdir -p "$folder/bin" "$folder/$host"
cd "$folder/$host"

fail() {
    printf '%s\n' "$1" >&2
    exit 1
}

# Returns whether the process NAME runs. After its end, another process may have got its number.
runs() {
    [ -s "$1.pid" ] && [ "$(tr '\0' ' ' 2> /dev/null < "/proc/$(cat "$1.pid")/cmdline")" = "$(cat "$1.command") " ]
}

# Starts NAME COMMAND…, in a session of its own, so that it does not end with the connection.
begin() {
    name=$1
    shift
    printf %s "$*" > "$name.command"
    (umask "$mask" && exec setsid nohup "$@") > "$name.log" 2>&1 < /dev/null &
    echo $! > "$name.pid"
}

# Ends the processes NAME… by SIGTERM. A node transfers its tasks first. After 45 s, a process is killed.
end() {
    for name; do
        if runs "$name"; then kill -TERM "$(cat "$name.pid")" || true; fi
    done
    left=450
    for name; do
        while runs "$name"; do
            [ $left -gt 0 ] || kill -KILL "$(cat "$name.pid")" || true
            left=$((left - 1))
            sleep 0.1
        done
        rm -f "$name.pid" "$name.command"
    done
}

# Returns the names of the nodes; with PROGRAM COUNT, of those of this program with higher numbers.
nodes() {
    for file in node-*.pid; do
        [ -e "$file" ] || continue
        name=${file%.pid}
        if [ $# = 0 ] || { [ "${name%-*}" = "node-$1" ] && [ "${name##*-}" -gt "$2" ]; }; then echo "$name"; fi
    done
}

case $verb in
check) # FILE: the system, whether it has the program, the name of the host and the number of the folder
    [ -x "$folder/bin/$1" ] && has=yes || has=no
    echo "$(uname -s) $(uname -m) $has $host $(stat -c %i .)"
    ;;
write) # FILE MODE BYTES
    part=$folder/$1.$host.part
    cat > "$part"
    [ "$(wc -c < "$part")" -eq "$3" ] || fail "the transfer of $1 was interrupted"
    chmod "$2" "$part"
    mv "$part" "$folder/$1"
    ;;
zookeeper) # ADDRESS PORT plain|tls
    if runs zookeeper; then exit 0; fi
    remedy='sudo apt-get install --no-install-recommends zookeeper default-jre-headless'
    command -v java > /dev/null || fail "Java is missing, which ZooKeeper needs: $remedy"
    if [ -e "${ZOOKEEPER_HOME:-/opt/zookeeper}/lib" ]; then
        classes="${ZOOKEEPER_HOME:-/opt/zookeeper}/lib/*"
    elif [ -e /usr/share/java/zookeeper.jar ]; then
        classes=
        for jar in zookeeper slf4j-simple servlet-api netty-buffer netty-codec netty-common netty-handler netty-resolver \
            netty-transport netty-transport-native-unix-common; do
            classes=${classes:+$classes:}/usr/share/java/$jar.jar
        done
    else
        fail "ZooKeeper is missing: $remedy, or set ZOOKEEPER_HOME to the folder of its archive"
    fi
    if cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | grep -q ":$(printf %04X "$2") [0-9A-F]*:0000 0A "; then
        fail "port $2 is in use: choose another one by --zk-port"
    fi
    # deploy/zookeeper/one-server.cfg explains these settings.
    cat > "$folder/zoo.cfg" << END
tickTime=2000
minSessionTimeout=4000
maxSessionTimeout=60000
dataDir=$folder/data
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
maxClientCnxns=500
admin.enableServer=false
4lw.commands.whitelist=srvr,mntr,ruok
END
    if [ "$3" = tls ]; then
        cat >> "$folder/zoo.cfg" << END
secureClientPort=$2
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location=$folder/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location=$folder/ca.pem
ssl.trustStore.type=PEM
ssl.clientAuth=need
END
    else
        printf 'clientPort=%s\nclientPortAddress=%s\n' "$2" "$1" >> "$folder/zoo.cfg"
    fi
    begin zookeeper java -Xmx1g -cp "$classes" org.apache.zookeeper.server.quorum.QuorumPeerMain "$folder/zoo.cfg"
    ;;
nodes) # PROGRAM FILE COUNT PORT ADDRESS ARGUMENT…: prints the process of each node
    program=$1 file=$folder/bin/$2 count=$3 port=$4 address=$5
    shift 5
    # shellcheck disable=SC2046 # names have no spaces
    end $(nodes "$program" "$count")
    number=1
    # shellcheck source=/dev/null
    . "$folder/env"
    while [ $number -le "$count" ]; do
        name=node-$program-$number
        case $address in
        127.0.0.1) listen= ;;
        *:*) listen="--listen [::]:$port --advertise $address" ;;
        *) listen="--listen 0.0.0.0:$port --advertise $address" ;;
        esac
        # shellcheck disable=SC2086 # two options
        command=$(set -- "$file" node $listen "$@" && printf %s "$*")
        if ! runs "$name" || [ "$(cat "$name.command")" != "$command" ]; then
            end "$name"
            # shellcheck disable=SC2086 # two options
            begin "$name" "$file" node $listen "$@"
        fi
        cat "$name.pid"
        number=$((number + 1))
        [ "$port" = 0 ] || port=$((port + 1))
    done
    # Programs that no node runs any more.
    for old in "$folder/bin/$program-"????????????; do
        [ "$old" = "$file" ] || rm -f "$old"
    done
    ;;
look) # NAME: fails with the end of the log if the process has ended
    runs "$1" || fail "$1 has ended; the end of $PWD/$1.log:
$(tail -n 12 "$1.log")"
    ;;
leave) # ends all nodes
    # shellcheck disable=SC2046 # names have no spaces
    end $(nodes)
    ;;
stop)
    end zookeeper
    ;;
esac
