#!/bin/sh
# Check that package.json is valid and that the package requires the version in .nvmrc.
set -eu
python3 -m json.tool "$1/package.json" > /dev/null
grep -q "\">=$(cat .nvmrc)\"" "$1/package.json" || { echo "$1 does not require Node.js $(cat .nvmrc)"; exit 1; }
grep -q "Needs Node.js $(cat .nvmrc)" "$1/README.md" || { echo "$1/README.md does not say so"; exit 1; }
