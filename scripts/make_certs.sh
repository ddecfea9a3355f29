#!/bin/sh
# Certificates for the processes of a job: a certificate authority of its own, and for each name
# (coordinator, server, worker) NAME.pem with its key and its certificate in one file.
# One that is there, is the authority's and is good for another day is kept.
set -eu

days=365
forget=""
if [ "${1:-}" = --forget-authority ]; then
    # Nobody can make another certificate; for new ones all are made again.
    forget=yes
    shift
fi
if [ $# -lt 1 ]; then
    echo "usage: make_certs.sh [--forget-authority] DIRECTORY [NAME...]" >&2
    exit 2
fi
directory=$1
shift
[ $# -gt 0 ] || set -- coordinator server worker

good() {
    openssl x509 -in "$1.pem" -noout -checkend 86400 > /dev/null 2>&1 \
        && openssl verify -CAfile authority.pem "$1.pem" > /dev/null 2>&1
}

umask 077
mkdir -p "$directory"
cd "$directory"

missing=""
for name in "$@"; do
    good "$name" || missing="$missing $name"
done
if [ -z "$missing" ]; then
    echo "all certificates are good for another day"
    exit
fi
if [ ! -f authority.key ]; then
    # Its key is gone or was never here: everybody gets a certificate of a new one.
    missing=$*
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days "$days" \
        -subj "/CN=FleetPS authority" -keyout authority.key -out authority.pem 2> /dev/null
fi
for name in $missing; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
        -keyout "$name.key" -out "$name.csr" 2> /dev/null
    printf 'subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$name" > "$name.ext"
    openssl x509 -req -in "$name.csr" -CA authority.pem -CAkey authority.key -CAcreateserial \
        -days "$days" -extfile "$name.ext" -out "$name.crt" 2> /dev/null
    cat "$name.key" "$name.crt" > "$name.pem"
    rm "$name.key" "$name.crt" "$name.csr" "$name.ext"
    echo "$directory/$name.pem"
done
rm -f authority.srl
[ -z "$forget" ] || rm authority.key
