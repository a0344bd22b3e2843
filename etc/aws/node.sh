#!/bin/sh
# What does a machine on EC2 do at each boot? It finds out which node it is, and starts that node's slurmd.
#
# cm-scale hands this file to its machines as user data. cloud-init runs it at the first boot, and at every later one
# the copy that it leaves behind; run again, it changes nothing. On a spot machine it also stays, as `node.sh watch
# NODE`, and drains the node when EC2 takes the machine back. What fails is a line on the console, where cm-scale finds
# it: cm-scale explain node NODE --console
#
# To change it copy it, and name the copy as `user_data`. CONF_SERVER between two @ is replaced before the launch.
set -eu

: "${CONF_SERVER:=@CONF_SERVER@}"
: "${IMDS:=http://169.254.169.254/latest}"
: "${PER_BOOT:=/var/lib/cloud/scripts/per-boot}"
: "${TRIES:=300}"
: "${PAUSE_S:=1}"
: "${EVERY_S:=5}"
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/opt/slurm/sbin:/opt/slurm/bin

node=
say() {
    echo "cm-scale: ${node:+$node: }$1" >&2
}
die() {
    say "$1"
    exit 1
}

# --- what the metadata service says ---

http() {
    curl --silent --fail --max-time 5 --noproxy '*' "$@"
}
new_token() {
    token=$(http -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$IMDS/api/token")
}
ask() {
    http -H "X-aws-ec2-metadata-token: $token" "$IMDS/meta-data/$1"
}

# --- which node is this machine? As cmscale/adapters/aws/names.py has it ---

# The names of a folded list, one a line: t4-[1-2],x
unfold() {
    awk -v list="$1" 'BEGIN {
        while (match(list, /^[^,[]+(\[[^]]*\])?/)) {
            part = substr(list, 1, RLENGTH)
            list = substr(list, RLENGTH + 2)
            opening = index(part, "[")
            if (!opening) { print part; continue }
            count = split(substr(part, opening + 1, length(part) - opening - 1), ranges, ",")
            for (i = 1; i <= count; i++) {
                if (split(ranges[i], ends, "-") == 1) ends[2] = ends[1]
                for (number = ends[1] + 0; number <= ends[2] + 0; number++)
                    printf "%s%0" length(ends[1]) "d\n", substr(part, 1, opening - 1), number
            }
        }
    }'
}

# The SHA-256 of our id in base64url, but for its last sign.
digest() {
    printf %s "$id" | sha256sum | awk '{
        signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        for (i = 1; i + 2 <= 64; i += 3) {
            bits = 0
            for (j = i; j < i + 3; j++) bits = bits * 16 + index("0123456789abcdef", substr($1, j, 1)) - 1
            printf "%s%s", substr(signs, int(bits / 64) + 1, 1), substr(signs, bits % 64 + 1, 1)
        }
    }'
}

# The place of our mark in the order of a fleet; nothing while a part of the order still says "...".
place_in() {
    awk -v digest="$(digest)" -v order="$1" 'BEGIN {
        count = split(order, marks, " ")
        for (i = 1; i <= count; i++) {
            if (marks[i] == "...") exit
            if (index(digest, marks[i]) == 1) { print i - 1; exit }
        }
    }'
}

# Machines of one launch share their tags: the launch index or, in a fleet, the place of our mark tells them apart.
find_node() {
    lacks="the metadata service at $IMDS does not tell the tag cm-scale:node"
    new_token || return 1
    id=$(ask instance-id) || return 1
    keys=$(ask tags/instance) || return 1
    list=$(ask tags/instance/cm-scale:node) || return 1
    place=$(ask ami-launch-index) || return 1
    market=$(ask instance-life-cycle) || return 1
    order=
    parts=0
    while echo "$keys" | grep -qx "cm-scale:order-$parts"; do
        order="$order $(ask "tags/instance/cm-scale:order-$parts")" || return 1
        parts=$((parts + 1))
    done
    if [ "$parts" -gt 0 ]; then
        lacks="the tags cm-scale:order-N do not say which machine of its fleet $id is"
        place=$(place_in "$order")
        [ -n "$place" ] || return 1
    fi
    lacks="the tag cm-scale:node is $list, which has no name at place $place"
    node=$(unfold "$list" | sed -n "$((place + 1))p")
    [ -n "$node" ]
}

# --- at each boot ---

unit_runs() {
    case $(systemctl is-active "$1" || :) in active | activating) return 0 ;; esac
    return 1
}

boot() {
    # First: a machine that fails here tries again at its next boot.
    [ "$0" = "$PER_BOOT/cm-scale-node" ] || install -D -m 755 "$0" "$PER_BOOT/cm-scale-node"
    tries=1
    until find_node; do
        [ "$tries" -lt "$TRIES" ] || die "$lacks; asked $TRIES times"
        tries=$((tries + 1))
        sleep "$PAUSE_S"
    done
    hostnamectl set-hostname "$node" || die "the host name cannot be set"
    systemctl start munge || die "munge does not start: is its key in the image?"
    start_slurmd
    [ "$market" != spot ] || start_watch
}

start_slurmd() {
    unit_runs cm-scale-slurmd && return
    slurmd=$(command -v slurmd) || die "there is no slurmd in $PATH"
    # The image's own unit knows neither the node's name nor where the configuration is.
    systemctl disable --now slurmd 2>/dev/null || :
    systemd-run --quiet --collect --unit=cm-scale-slurmd --description="slurmd of $node" \
        --property=Delegate=yes --property=KillMode=process --property=TasksMax=infinity \
        --property=LimitNOFILE=131072 --property=LimitMEMLOCK=infinity --property=LimitSTACK=infinity \
        --property=StandardOutput=journal+console --property=StandardError=journal+console \
        --property=Restart=on-failure --property=RestartSec=10 \
        "$slurmd" -D -N "$node" ${CONF_SERVER:+--conf-server "$CONF_SERVER"} || die "slurmd cannot be started"
    say "slurmd is started"
}

start_watch() {
    unit_runs cm-scale-watch && return
    systemd-run --quiet --collect --unit=cm-scale-watch --description="Tells Slurm when EC2 takes $node back" \
        --property=StandardOutput=journal+console --property=StandardError=journal+console \
        --property=Restart=on-failure --property=RestartSec=10 \
        sh "$PER_BOOT/cm-scale-node" watch "$node" || die "the watch for spot interruptions cannot be started"
}

# --- on a spot machine ---

watch() {
    node=$1
    while sleep "$EVERY_S"; do
        new_token || continue
        action=$(ask spot/instance-action) || {
            advised
            continue
        }
        at=$(echo "$action" | sed -n 's/.*"time": *"[^"T]*T\([0-9:]*\)Z".*/\1/p')
        drain "cm-scale: notice by ${at:-$(date -u +%T)} UTC: spot interruption" && break
    done
}

# Advice is no end: it may never come to one, so that running and new jobs are left alone.
advised() {
    [ -z "${told:-}" ] && told=$(ask events/recommendations/rebalance) || return 0
    say "EC2 advises to leave this machine: $told"
}

# A drain by a person has the last word: its reason is not written over.
drain() {
    reason=$(sinfo --noheader --nodes="$node" --format=%E | head -n 1) && [ -n "$reason" ] || return 1
    case $reason in
    none | cm-scale:*) scontrol update nodename="$node" state=drain reason="$1" || return 1 ;;
    *) say "is drained already: $reason" ;;
    esac
    say "$1"
}

case ${1:-boot} in
boot) boot ;;
watch) watch "$2" ;;
*) die "expected nothing, or: watch NODE; got $1" ;;
esac
