#!/usr/bin/env bash
# Prints the median of the numbers given as arguments.
set -euo pipefail

[ "$#" -gt 0 ] || { echo "usage: median.sh NUMBER..." >&2; exit 2; }

mapfile -t sorted < <(printf '%s\n' "$@" | sort)
echo "${sorted[$(( ($# - 1) / 2 ))]}"
