#!/bin/sh
# Tests of version.sh: prints one line a case, exits 1 when one fails.
cd "$(dirname "$0")" || exit 2
. ./version.sh
passed=0
failed=0

check() { # check WANTED A B
  if newer "$2" "$3"; then got=yes; else got=no; fi
  if [ "$got" = "$1" ]; then
    passed=$((passed + 1))
    echo "ok      $2 newer than $3: $got"
  else
    failed=$((failed + 1))
    echo "NOT OK  $2 newer than $3: $got, wanted $1"
  fi
}

check yes 2.0.0 1.9.9
check no 1.0.0 1.0.0
check no 1.2.3 1.2.4
check yes 1.10.0 1.9.0
check no 1.9.0 1.10.0
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
