#!/bin/sh
# The three kinds of jobs of a pipeline, for Jenkins, Buildkite, Azure Pipelines and CircleCI:
#   autopilot-ci.sh plan        matrix.json: the jobs, stage by stage
#   autopilot-ci.sh job NAME    shards/NAME, from the shards of the jobs that it needs
#   autopilot-ci.sh join        reports/, the branches of the stories, and the exit code of the whole run
#
# AUTOPILOT_STORIES   story files or folders; empty for stories/
# AUTOPILOT_PACKAGE   what pip installs: a path, a wheel or a git address
# AUTOPILOT_SETUP     commands that install an agent and the tools of the project
# AUTOPILOT_PASS      the names of the variables that sessions get, such as ANTHROPIC_API_KEY
# AUTOPILOT_FLAGS     more flags for `autopilot-multi run`
set -eu

if [ -z "${VIRTUAL_ENV:-}" ]; then
  [ -d .autopilot-venv ] || python3 -m venv .autopilot-venv
  PATH=$PWD/.autopilot-venv/bin:$PATH
  echo /.autopilot-venv/ >> .git/info/exclude
fi
echo /shards/ >> .git/info/exclude
pip install --quiet "$AUTOPILOT_PACKAGE"
mkdir -p shards

matrix() {
  autopilot-multi matrix ${AUTOPILOT_STORIES:-} --stages=3 --format=json > matrix.json
}

plan() {
  eval "${AUTOPILOT_SETUP:-}"
  # It fails if an agent is missing, before any job starts.
  autopilot-multi plan ${AUTOPILOT_STORIES:-}
  matrix
}

job() {
  eval "${AUTOPILOT_SETUP:-}"
  [ -e matrix.json ] || matrix
  only=$(python3 -c '
import json, sys
jobs = [job for stage in json.load(open("matrix.json"))["stages"] for job in stage]
print(next(job["only"] for job in jobs if job["name"] == sys.argv[1]))
' "$1")
  name=$1
  # Sessions get these variables and no others of the job.
  set --
  for variable in PATH HOME USER LANG LC_ALL TMPDIR TERM CI ${AUTOPILOT_PASS:-}; do
    if value=$(printenv "$variable"); then set -- "$@" "$variable=$value"; fi
  done
  # They do not get variables that look like secrets, except these.
  set -- "$@" AUTOPILOT_MULTI_PASS_ENV="$(echo "${AUTOPILOT_PASS:-}" | tr ' ' ,)"
  rm -rf "shards/$name"
  # Ends in time to write its shard before the limit of the job.
  exec env -i "$@" timeout --foreground 110m autopilot-multi run ${AUTOPILOT_STORIES:-} $only --trust \
    --grace-seconds=4 ${AUTOPILOT_FLAGS:-} --shard-in shards --shard-out "shards/$name"
}

join() {
  code=0
  [ -e matrix.json ] || matrix
  mkdir -p reports
  autopilot-multi aggregate shards --matrix matrix.json --branches --into-repo --json > reports/state.json || code=$?
  for format in html junit markdown; do
    autopilot-multi report shards --matrix matrix.json --format=$format --output="reports/autopilot.$format"
  done
  mv reports/autopilot.junit reports/junit.xml
  mv reports/autopilot.markdown reports/summary.md
  exit "$code"
}

case ${1:-} in
  plan | job | join) "$@" ;;
  *) echo "usage: autopilot-ci.sh plan | job NAME | join" >&2; exit 1 ;;
esac
