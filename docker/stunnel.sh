#!/bin/sh
# Beside one process of a job: TLS with a certificate on both sides, for what it serves and for what
# it reaches. Its environment:
#
#   CERTIFICATE  its own, /certs/<name>.pem with the key in it; /certs/authority.pem signs all
#   SERVES       host:port of the process; others reach it here on port 7443
#   ADMITS       the one name of a certificate that may come in; without: every name of this authority
#   REACHES      "host:port=peer/name ...": what comes in at host:port goes to port 7443 of the peer,
#                if that has the certificate of this name
set -eu

config=/tmp/stunnel.conf
{
    echo "foreground = yes"
    echo "syslog = no"
    echo "debug = warning"
    echo "pid ="
    echo "socket = l:TCP_NODELAY=1"
    echo "socket = r:TCP_NODELAY=1"
    echo "sslVersionMin = TLSv1.3"
    echo "CAfile = /certs/authority.pem"
    echo "cert = /certs/$CERTIFICATE.pem"
    echo "verifyChain = yes"
    echo "requireCert = yes"
    if [ -n "${SERVES:-}" ]; then
        echo "[serves]"
        echo "accept = 0.0.0.0:7443"
        echo "connect = $SERVES"
        [ -z "${ADMITS:-}" ] || echo "checkHost = $ADMITS"
    fi
    for way in ${REACHES:-}; do
        peer=${way#*=}
        echo "[${peer%/*}]"
        echo "client = yes"
        echo "accept = ${way%%=*}"
        echo "connect = ${peer%/*}:7443"
        echo "checkHost = ${peer#*/}"
        # Peers start in any order: their names are looked up when they are needed.
        echo "delay = yes"
    done
} > "$config"
exec stunnel4 "$config"
