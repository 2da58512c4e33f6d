# The agent of the demo when Claude Code cannot be fetched: a script with the moves of one. It runs
# in the box as the brief of the `command` harness, in the project's folder.
set -eu
say() { echo "$1"; sleep "${2:-1}"; }
say "Running the tests first, to see what fails." 1
sh test.sh || true
say "Reading version.sh: it sorts the versions as text." 2
say "Comparing each part as a number instead." 2
sed -i 's/| sort | head/| sort -t . -k 1,1n -k 2,2n -k 3,3n | head/' version.sh
say "Running the tests again." 1
sh test.sh
mkdir -p ~/.crewbox
cat >~/.crewbox/findings.md <<'END'
## What was wrong

`newer` in `version.sh` sorted the two versions as text, so `1.10.0` came before `1.9.0`.

## What I changed

`sort` now compares the three parts as numbers (`-t . -k 1,1n -k 2,2n -k 3,3n`). Nothing else.

## How I know

`sh test.sh` in the box: 3 passed, 2 failed before; 5 passed, 0 failed after.
END
