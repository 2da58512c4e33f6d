#!/bin/sh
# Compares two version numbers such as 1.9.0 and 1.10.0.
#   . ./version.sh; newer 1.10.0 1.9.0 && echo yes

# newer A B: true when version A is newer than version B.
newer() {
  [ "$1" != "$2" ] || return 1
  first=$(printf '%s\n%s\n' "$1" "$2" | sort | head -n 1)
  [ "$first" = "$2" ]
}
