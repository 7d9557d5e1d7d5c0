#!/bin/sh
# Set the minimum Node.js version of a package to the version in .nvmrc.
set -eu
file="$1/package.json"
sed "s/\"node\": \"[^\"]*\"/\"node\": \">=$(cat .nvmrc)\"/" "$file" > "$file.new"
mv "$file.new" "$file"
printf '\nNeeds Node.js %s.\n' "$(cat .nvmrc)" >> "$1/README.md"
