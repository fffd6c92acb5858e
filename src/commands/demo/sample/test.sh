#!/usr/bin/env bash
# Checks median.sh. Prints one line per case; exits with 1 if any of them fails.
cd "$(dirname "$0")" || exit 1
failed=0

check() {
    local want=$1 got
    shift
    got=$(./median.sh "$@")
    if [ "$got" = "$want" ]; then
        echo "ok   median $* = $got"
    else
        echo "FAIL median $*: want $want, got $got"
        failed=1
    fi
}

check 2 1 2 3
check 5 9 5 1
check 10 2 10 30
check 7 100 7 3
exit "$failed"
