# Run attacks one after the other in this session: drive.sh END NAME...
END=$1; shift
. "$SCRIPTS/env"
G=$(git rev-parse --path-format=absolute --git-common-dir); export G
I=0; until [ -e "$FOLDER/meet/waiting" ] || [ $I -gt 400 ]; do sleep 0.05; I=$((I + 1)); done
for NAME; do
    I=0
    while :; do
        timeout 25 sh "$SCRIPTS/$NAME.sh" > "$LOOT/$NAME.out" 2> "$LOOT/$NAME.err" < /dev/null
        STATUS=$?
        # Git stumbles at the HEAD of a worktree that another git is just adding, which proves nothing.
        grep -q "bad object worktrees/" "$LOOT/$NAME.err" && [ $I -lt 20 ] || break
        sleep 0.2; I=$((I + 1))
    done
    echo $STATUS > "$LOOT/$NAME.status"
    tail -n 4 "$LOOT/$NAME.err" | sed "s/^/$NAME: /"  # a reason is made of the last output of all of them
    case $NAME in text-*-output) cat "$LOOT/$NAME.out";; esac
done
touch "$FOLDER/meet/done-$AUTOPILOT_STORY_ID"
exit "$END"
