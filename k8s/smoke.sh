#!/usr/bin/env bash
# What only a real cluster shows: applies k8s/overlays/minimal to the cluster of $KUBECONFIG, in namespaces of
# its own that it removes again, and says of each claim whether it holds there.
#
#   k8s/smoke.sh [OPTIONS] [CLAIM...]        all claims without a name; about half an hour
#
#   --list            the claims
#   --image IMAGE     name:tag or name@digest, where the cluster finds it (fleetps:0.1.0)
#   --overlay DIR     another one than k8s/overlays/minimal, e.g. for another storage class
#   --namespace NAME  the namespaces begin so (fleetps-smoke)
#   --keep            leave the namespaces, to look at what failed
#
# Exit code: 0 all hold, 1 one doesn't, 2 wrong usage or no cluster. docs/kubernetes-not-tested.md tells more.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=fleetps-smoke
overlay=$here/overlays/minimal
image=""
keep=""
poll=${SMOKE_POLL:-2}      # seconds between two looks
scale=${SMOKE_SCALE:-1}    # longer deadlines for slow clusters: 3 = three times
work=$(mktemp -d)
namespace=""               # of the claim

# -- the claims: the line above each is what it says --

# the API server takes every object, and warns of none
claim_valid() {
    local said
    render valid
    new_namespace "$namespace"
    said=$(kubectl apply --dry-run=server -f "$work/valid.yaml" 2>&1) || refuse "$said"
    if grep -qi '^warning' <<< "$said"; then refuse "$(grep -i '^warning' <<< "$said")"; fi
}

# Pod Security restricted lets all our pods in, and not every other one
claim_restricted() {
    need quick
    local said
    if said=$(kubectl -n "$namespace" run stranger --image="$(image_of)" --dry-run=server 2>&1); then
        refuse "a pod without securityContext was let in: Pod Security Admission is off here"
    fi
    grep -q "violates PodSecurity" <<< "$said" || refuse "$said"
    within 120 "all five pods" five_pods
    said=$(kubectl -n "$namespace" get events --field-selector reason=FailedCreate -o name)
    [ -z "$said" ] || refuse "a pod was refused: kubectl -n $namespace get events"
}

# coordinator, servers and workers are scheduled, pulled and ready, and find one another
claim_starts() {
    need quick
    within 600 "the pods to be ready" ready
    within 120 "two servers and two workers at the coordinator" \
        says "len(s['servers']) == 2 and len(s['workers']) == 2"
}

# a server has the name that the others know, before and after it is ready
claim_names() {
    need long
    within 600 "the pods to be ready" ready
    on fleetps-server-1 getent hosts fleetps-server-0.fleetps-server > /dev/null \
        || refuse "fleetps-server-0.fleetps-server can't be resolved"
}

# no pod has a token for the API; all run as user 10001 and can write into their volumes
claim_rights() {
    need long
    within 600 "the pods to be ready" ready
    local pod
    for pod in fleetps-coordinator-0 fleetps-server-0; do
        on "$pod" test ! -e /var/run/secrets/kubernetes.io || refuse "$pod has a token for the API"
        [ "$(on "$pod" id -u)" = 10001 ] || refuse "$pod runs as user $(on "$pod" id -u)"
        on "$pod" sh -c 'touch /app/checkpoints/.smoke && rm /app/checkpoints/.smoke' \
            || refuse "$pod can't write into /app/checkpoints: fsGroup isn't heeded by this storage"
        if on "$pod" touch /smoke 2> /dev/null; then refuse "$pod can write into its root"; fi
    done
}

# the page comes through kubectl port-forward, and asks for the token
claim_page() {
    need long
    within 600 "the coordinator" ready
    local token code
    command -v curl > /dev/null || refuse "this claim needs curl here"
    token=$(kubectl -n "$namespace" get secret fleetps-token -o jsonpath='{.data.token}' | base64 -d)
    kubectl -n "$namespace" port-forward pod/fleetps-coordinator-0 17000:7000 > /dev/null 2>&1 &
    # shellcheck disable=SC2064
    trap "kill $!" EXIT
    within 30 "port-forward" curl -fsS -o /dev/null http://127.0.0.1:17000/health
    code=$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:17000/status)
    [ "$code" = 401 ] || refuse "without a token: $code"
    code=$(curl -s -o /dev/null -w '%{http_code}' -u "any:$token" http://127.0.0.1:17000/)
    [ "$code" = 200 ] || refuse "with the token: $code"
}

# NetworkPolicies are heeded: strangers reach neither servers nor coordinator
claim_network() {
    need long
    within 600 "the pods to be ready" ready
    local where
    for where in "$namespace" "$(other_namespace)"; do
        stranger "$where"
        reaches "$where" "kubernetes.default.svc" 443 \
            || refuse "a stranger in $where reaches nothing at all, so this shows nothing"
        if reaches "$where" "fleetps-server-0.fleetps-server.$namespace.svc" 6174; then
            refuse "a pod in $where reaches a server's port: who can do that can change the model"
        fi
        if reaches "$where" "fleetps-coordinator.$namespace.svc" 7000; then
            refuse "a pod in $where reaches the coordinator"
        fi
    done
}

# a namespace with the label fleetps/watch=true reaches the coordinator, and no server
claim_watchers() {
    need long
    within 600 "the pods to be ready" ready
    local where
    where=$(other_namespace)
    stranger "$where"
    kubectl label namespace "$where" fleetps/watch=true --overwrite > /dev/null
    within 30 "the coordinator to let $where in" \
        reaches "$where" "fleetps-coordinator.$namespace.svc" 7000
    if reaches "$where" "fleetps-server-0.fleetps-server.$namespace.svc" 6174; then
        refuse "a watcher reaches a server's port"
    fi
    kubectl label namespace "$where" fleetps/watch- > /dev/null
}

# a worker's pod that is killed is replaced, and the others go on meanwhile
claim_kill_worker() {
    training
    local lost generation
    generation=$(ask "s['generation']")
    lost=$(ask "s['workers_lost']")
    kill_pod "$(pods_of worker | head -n 1)"
    within 300 "the coordinator to miss it" says "s['workers_lost'] > $lost"
    within 300 "two workers at work" two_work
    [ "$(ask "s['generation']")" = "$generation" ] || refuse "the job began again because of a worker"
}

# a server's pod that is killed comes back under its name, and the job goes on from its checkpoint
claim_kill_server() {
    training
    local generation
    generation=$(ask "s['generation']")
    within 300 "a checkpoint" says "s['checkpoint']['number'] > 0"
    kill_pod fleetps-server-0
    within 300 "a new generation" says "s['generation'] > $generation"
    progress
}

# a coordinator's pod that is killed goes on where it was, from its own volume
claim_kill_coordinator() {
    training
    local rows generation
    rows=$(ask "s['rows_done']")
    generation=$(ask "s['generation']")
    kill_pod fleetps-coordinator-0
    within 300 "the coordinator" says "s['rows_done'] >= $rows"
    [ "$(ask "s['generation']")" = "$generation" ] || refuse "the job began again because of it"
    progress
}

# a process that is alive but stands still is started again by its livenessProbe
claim_liveness() {
    training
    local before
    before=$(restarts fleetps-server-1)
    # Process 1, tini, can't be stopped from inside; the agent is its child.
    # shellcheck disable=SC2016
    on fleetps-server-1 sh -c 'kill -STOP "$(cat /proc/1/task/1/children | cut -d" " -f1)"'
    within 420 "fleetps-server-1 to be started again" restarted fleetps-server-1 "$before"
    progress
}

# workers come and go while it trains, by the Job's parallelism
claim_scale() {
    training
    parallelism 3
    within 300 "three workers" says "$(at_work) == 3"
    parallelism 2
    within 300 "two workers" says "$(at_work) == 2"
    progress
}

# another number of servers goes on from the checkpoint, by the commands of k8s/README.md
claim_servers() {
    training
    within 300 "a checkpoint" says "s['checkpoint']['number'] > 0"
    kubectl -n "$namespace" set env statefulset/fleetps-coordinator SERVERS=3 > /dev/null
    kubectl -n "$namespace" scale statefulset/fleetps-server --replicas=3 > /dev/null
    within 600 "three servers" says "$(serving) == 3"
    progress
    kubectl -n "$namespace" set env statefulset/fleetps-coordinator SERVERS=2 > /dev/null
    kubectl -n "$namespace" scale statefulset/fleetps-server --replicas=2 > /dev/null
    within 600 "two servers" says "$(serving) == 2"
    progress
}

# evictions take one server at a time, and count for no worker
claim_disruption() {
    training
    local failed left
    failed=$(job_field fleetps-worker status.failed)
    left=$(ask "s['events'].get('worker-left', 0)")
    evict "$(pods_of worker | head -n 1)" || refuse "a worker can't be evicted"
    within 300 "it to leave" says "s['events'].get('worker-left', 0) > $left"
    within 300 "two workers at work" two_work
    [ "$(job_field fleetps-worker status.failed)" = "$failed" ] \
        || refuse "an eviction counts as a failure: is podFailurePolicy known here?"
    within 300 "both servers to be ready" ready
    evict fleetps-server-0 || refuse "a server can't be evicted"
    if evict fleetps-server-1; then refuse "two servers could be evicted at once"; fi
    within 300 "both servers to be ready" ready
    progress
}

# stopped by the commands of k8s/README.md it makes a checkpoint, and goes on from it
claim_resume() {
    training
    local number
    number=$(ask "s['checkpoint']['number']")
    kubectl -n "$namespace" scale statefulset/fleetps-coordinator --replicas=0 > /dev/null
    kubectl -n "$namespace" wait --for=delete --timeout=180s pod/fleetps-coordinator-0 > /dev/null \
        || refuse "the coordinator didn't end within three minutes"
    kubectl -n "$namespace" patch job fleetps-worker --type merge -p '{"spec":{"suspend":true}}' > /dev/null
    kubectl -n "$namespace" scale statefulset/fleetps-server --replicas=0 > /dev/null
    within 180 "all pods to be gone" no_pods
    kubectl -n "$namespace" scale statefulset/fleetps-server --replicas=2 > /dev/null
    kubectl -n "$namespace" scale statefulset/fleetps-coordinator --replicas=1 > /dev/null
    kubectl -n "$namespace" patch job fleetps-worker --type merge -p '{"spec":{"suspend":false}}' > /dev/null
    within 600 "the job to go on" two_work
    [ "$(ask "s['checkpoint']['number']")" -gt "$number" ] || refuse "no checkpoint was made at the end"
    progress
}

# a mistake in the job file fails the Job at once, by its exit code
claim_mistake() {
    need wrong
    within 300 "the Job to fail" mistake_told
}

# the job trains to its end: the Job is complete, coordinator and servers stay, the result is there
claim_done() {
    need quick
    kubectl -n "$namespace" wait --for=condition=complete --timeout="$((1200 * scale))s" job/fleetps-worker \
        > /dev/null || refuse "the Job isn't complete: kubectl -n $namespace describe job fleetps-worker"
    within 60 "the job to be done" says "s['job'] == 'done'"
    on fleetps-coordinator-0 test -s /app/runs/quickstart/result.json || refuse "no result.json"
    [ "$(job_field fleetps-worker status.failed)" = "" ] || refuse "workers failed on the way"
    sleep "$((15 * scale))"
    says "s['job'] == 'done'" || refuse "it began again"
}

# -- what they are made of --

# In the order of this file.
claims() { sed -n 's/^claim_\([a-z_]*\)() {$/\1/p' "${BASH_SOURCE[0]}"; }

about() { grep -B 1 "^claim_$1() {$" "${BASH_SOURCE[0]}" | sed -n '1s/^# //p'; }

refuse() {
    printf '%s\n' "$1" >&2
    exit 1
}

# within SECONDS WHAT COMMAND...: until the command succeeds.
within() {
    local deadline=$((SECONDS + $1 * scale)) seconds=$1 what=$2
    shift 2
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || refuse "waited $((seconds * scale)) s for $what"
        sleep "$poll"
    done
}

on() {
    local pod=$1
    shift
    kubectl -n "$namespace" exec "$pod" -- "$@"
}

# ask EXPRESSION: in Python, of the status `s`.
ask() {
    # shellcheck disable=SC2016
    on fleetps-coordinator-0 sh -c \
        'fleetps status --json | python -c "import json, sys; s = json.load(sys.stdin); print(eval(sys.argv[1]))" "$0"' "$1"
}

says() { [ "$(ask "$1")" = True ]; }

at_work() { printf '%s' "len([one for one in s['workers'] if one['state'] == 'running'])"; }

serving() { printf '%s' "len([one for one in s['servers'] if one['state'] == 'serving'])"; }

two_work() { says "$(at_work) == 2"; }

training() {
    need long
    within 900 "both workers to train" says "$(at_work) == 2 and s['rows_done'] > 0"
}

progress() {
    local rows
    within 300 "the status" says "True"
    rows=$(ask "s['rows_done']")
    within 600 "the training to go on" says "s['rows_done'] != $rows and s['job'] == 'running'"
}

pods_of() {
    kubectl -n "$namespace" get pods -o name --field-selector status.phase=Running \
        -l "app.kubernetes.io/component=$1" | sed 's|^pod/||'
}

kill_pod() { kubectl -n "$namespace" delete pod "$1" --grace-period=0 --force > /dev/null 2>&1; }

evict() {
    local body='{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s","namespace":"%s"}}'
    # shellcheck disable=SC2059
    printf "$body" "$1" "$namespace" \
        | kubectl create --raw "/api/v1/namespaces/$namespace/pods/$1/eviction" -f - > /dev/null 2>&1
}

restarts() {
    kubectl -n "$namespace" get pod "$1" -o jsonpath='{.status.containerStatuses[0].restartCount}'
}

restarted() { [ "$(restarts "$1")" -gt "$2" ]; }

job_field() { kubectl -n "$namespace" get job "$1" -o jsonpath="{.$2}"; }

mistake_told() {
    kubectl -n "$namespace" get job fleetps-worker -o jsonpath='{.status.conditions[*].reason}' \
        | grep -q PodFailurePolicy
}

parallelism() {
    kubectl -n "$namespace" patch job fleetps-worker --type merge \
        -p "{\"spec\":{\"parallelism\":$1}}" > /dev/null
}

five_pods() {
    [ "$(kubectl -n "$namespace" get pods -o name -l app.kubernetes.io/instance=fleetps | wc -l)" -ge 5 ]
}

no_pods() {
    [ -z "$(kubectl -n "$namespace" get pods -o name --field-selector status.phase=Running)" ]
}

ready() {
    kubectl -n "$namespace" wait --for=condition=ready --timeout=1s pod \
        -l 'app.kubernetes.io/instance=fleetps,app.kubernetes.io/component in (coordinator,server)'
}

image_of() {
    kubectl -n "$namespace" get statefulset fleetps-server -o jsonpath='{.spec.template.spec.containers[0].image}'
}

# A pod with Python that belongs to no job.
stranger() {
    kubectl -n "$1" get pod stranger > /dev/null 2>&1 && return
    kubectl -n "$1" apply -f - > /dev/null << POD
apiVersion: v1
kind: Pod
metadata: {name: stranger}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: stranger
      image: $(image_of)
      imagePullPolicy: IfNotPresent
      args: [sleep, "86400"]
      resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {cpu: 100m, memory: 128Mi}}
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
POD
    kubectl -n "$1" wait --for=condition=ready --timeout=120s pod/stranger > /dev/null \
        || refuse "the pod stranger in $1 doesn't start"
}

# reaches NAMESPACE HOST PORT: whether its stranger does.
reaches() {
    kubectl -n "$1" exec stranger -- python -c \
        "import socket; socket.create_connection(('$2', $3), 5)" > /dev/null 2>&1
}

new_namespace() {
    kubectl create namespace "$1" > /dev/null || refuse "namespace $1 can't be made; is it still there?"
    echo "$1" >> "$work/made"
    kubectl label namespace "$1" pod-security.kubernetes.io/enforce=restricted \
        pod-security.kubernetes.io/warn=restricted > /dev/null
}

other_namespace() {
    namespace_there "$prefix-other" || new_namespace "$prefix-other"
    echo "$prefix-other"
}

namespace_there() { grep -qFx "$1" "$work/made" 2> /dev/null; }

# render KIND: the objects of a job in $work/KIND.yaml. quick, valid: as the overlay has it. long: it doesn't
# end, and makes a checkpoint each minute. wrong: its workers have a mistake in their options.
render() {
    local kind=$1
    namespace=$prefix-$kind
    mkdir -p "$work/$kind"
    {
        echo "apiVersion: kustomize.config.k8s.io/v1beta1"
        echo "kind: Kustomization"
        echo "namespace: $namespace"
        echo "resources: [$(relative "$overlay" "$work/$kind")]"
        [ -z "$image" ] || image_entry
        case $kind in
            long) long_job ;;
            wrong) wrong_worker ;;
        esac
    } > "$work/$kind/kustomization.yaml"
    kubectl kustomize "$work/$kind" > "$work/$kind.yaml" || refuse "$overlay can't be built"
}

relative() { realpath --relative-to="$(realpath "$2")" "$(realpath "$1")"; }

image_entry() {
    local name=${image%%@*} digest=""
    [ "$name" = "$image" ] || digest=${image#*@}
    if [ -n "$digest" ]; then
        echo "images: [{name: fleetps, newName: \"$name\", digest: \"$digest\"}]"
    else
        echo "images: [{name: fleetps, newName: \"${image%:*}\", newTag: \"${image##*:}\"}]"
    fi
}

long_job() {
    sed 's/^  epochs: .*/  epochs: 10000/' "$here/base/job.yaml" > "$work/long/job.yaml"
    echo "checkpoint: {every: {minutes: 1}}" >> "$work/long/job.yaml"
    echo "configMapGenerator: [{name: fleetps-job, behavior: replace, files: [job.yaml]}]"
}

wrong_worker() {
    cat << 'PATCH'
patches:
  - target: {kind: Job}
    patch: |-
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --set=optimizer.nonsense=1}
PATCH
}

# need KIND: that job, made when it is needed first.
need() {
    namespace=$prefix-$1
    namespace_there "$namespace" && return
    render "$1"
    new_namespace "$namespace"
    kubectl -n "$namespace" create secret generic fleetps-token \
        --from-literal=token="$(head -c 24 /dev/urandom | base64 | tr -d '/+=')" > /dev/null
    kubectl apply -f "$work/$1.yaml" > "$work/apply.log" 2>&1 || refuse "$(tail -n 1 "$work/apply.log")"
}

clean() {
    local there=()
    [ ! -s "$work/made" ] || mapfile -t there < "$work/made"
    rm -rf "$work"
    [ ${#there[@]} -gt 0 ] || return 0
    if [ -n "$keep" ]; then
        echo "left as they are: ${there[*]}"
    else
        kubectl delete namespace "${there[@]}" --timeout="$((300 * scale))s" > /dev/null \
            || echo "not removed: ${there[*]}"
    fi
}

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

wrong_usage() {
    echo "smoke.sh: $1" >&2
    exit 2
}

report() {
    local claim=$1 said began=$SECONDS
    if said=$("claim_$claim" 2>&1); then
        printf 'pass  %-16s %4d s  %s\n' "$claim" $((SECONDS - began)) "$(about "$claim")"
    else
        printf 'FAIL  %-16s %4d s  %s\n      %s\n' "$claim" $((SECONDS - began)) "$(about "$claim")" \
            "$(tail -n 1 <<< "$said")"
        return 1
    fi
}

main() {
    local wanted=() claim failed=0 listed=""
    trap clean EXIT
    trap 'exit 143' TERM
    trap 'exit 130' INT
    while [ $# -gt 0 ]; do
        case $1 in
            --list) listed=yes ;;
            --keep) keep=yes ;;
            --image | --overlay | --namespace)
                [ $# -gt 1 ] || wrong_usage "$1 needs a value"
                case $1 in
                    --image) image=$2 ;;
                    --overlay) overlay=$2 ;;
                    --namespace) prefix=$2 ;;
                esac
                shift
                ;;
            --help | -h) usage; exit 0 ;;
            -*) wrong_usage "$1 is not an option; see --help" ;;
            *)
                claims | grep -qFx -- "$1" || wrong_usage "there is no claim $1; see --list"
                wanted+=("$1")
                ;;
        esac
        shift
    done
    if [ -n "$listed" ]; then
        for claim in $(claims); do
            printf '%-16s %s\n' "$claim" "$(about "$claim")"
        done
        exit 0
    fi
    [ -f "$overlay/kustomization.yaml" ] || wrong_usage "there is no kustomization.yaml in $overlay"
    kubectl version --request-timeout=10s > "$work/version" 2>&1 \
        || wrong_usage "no cluster answers: $(tail -n 1 "$work/version")"
    grep -i 'server version' "$work/version"
    [ ${#wanted[@]} -gt 0 ] || mapfile -t wanted < <(claims)
    for claim in "${wanted[@]}"; do
        report "$claim" || failed=$((failed + 1))
    done
    echo "$((${#wanted[@]} - failed)) of ${#wanted[@]} claims hold"
    [ "$failed" = 0 ]
}

main "$@"
