"""Cases about the work: done, claimed, forgotten, broken, asked about; and what is done to git meanwhile."""

from tests.real_agents.cases.case import COMMIT, OTHERS, RIGHT, TALKERS, WRONG, Act, Case, say, sh

CLAUDE = ("claude",)
BAD = {"max_attempts": 2}
CORRECTED: tuple[str, tuple[Act, ...]] = ("NOT-RIGHT", (RIGHT,))
FILE = "work/@ID.txt"


def _done(name: str, *acts: Act, **more: object) -> Case:
    return Case(name=name, acts=acts, heals=True, **more)  # type: ignore[arg-type]


def _bad(name: str, *acts: Act, **more: object) -> Case:
    return Case(name=name, acts=acts, **{"keys": BAD, **more})  # type: ignore[arg-type]


WORK = [
    _done("work", RIGHT),
    _done("work-by-editor", {"write": [FILE, "right\n"]}, agents=(*TALKERS, *OTHERS)),
    _done("work-by-patch", {"patch": [FILE, "right\n"]}),
    _done("work-committed", RIGHT, COMMIT),
    _done("work-amended", WRONG, COMMIT, RIGHT, sh("git commit -qa --amend -m better")),
    _done("work-in-two-commits", WRONG, COMMIT, RIGHT, COMMIT),
    _done("work-half-committed", sh("echo more > more.txt"), COMMIT, RIGHT),
    _done("work-many-files", sh("mkdir -p many && for n in $(seq 300); do echo $n > many/$n; done"), RIGHT),
    _done("work-deep", sh("d=$(seq -s/ 60); mkdir -p $d && echo x > $d/x"), RIGHT),
    _done("work-large-file", sh("head -c 20000000 /dev/zero > zero.bin"), RIGHT),
    _done("work-odd-names", sh("echo x > 'a b'; echo x > 'ü'; echo x > -n; printf x > $'tab\\t'"), RIGHT),
    _done("work-link-and-mode", sh("ln -s README link; echo true > run; chmod +x run"), RIGHT),
    _done("work-deletes", sh("git rm -q old.txt"), RIGHT),
    _done("work-renames", sh("git mv old.txt new.txt"), RIGHT),
    _done("work-beside-ignored", sh("mkdir -p build && echo x > build/x"), RIGHT),
    _done("work-stashed-and-popped", RIGHT, sh("git stash -q -u && git stash pop -q")),
    _done("work-rebased", WRONG, COMMIT, sh("git reset -q --soft HEAD~1"), RIGHT, COMMIT),
    _done(
        "work-merged",
        sh("git checkout -q -b side-@ID"),
        RIGHT,
        COMMIT,
        sh("git checkout -q -; git merge -q side-@ID"),
    ),
    _done("work-tagged", RIGHT, COMMIT, sh("git tag v-@ID")),
    _done("work-staged-only", RIGHT, sh("git add -A")),
    _done("work-intent-to-add", RIGHT, sh("git add -N .")),
    _done("work-crlf", sh("printf 'a\\r\\nb\\r\\n' > crlf.txt"), RIGHT),
    _done("work-binary", sh("head -c 100000 /dev/urandom > noise.bin"), RIGHT),
    _done("work-after-failed-tools", sh("exit 3"), sh("no-such-program"), RIGHT),
    _done("work-then-asks", RIGHT, say("I made it. Should I also write a test?")),
    _done("work-then-chatters", RIGHT, say("word " * 60_000)),
    _done("work-with-result", RIGHT, sh('echo \'{"status": "done"}\' > $AUTOPILOT_RESULT_FILE')),
    _done("work-with-odd-result", RIGHT, sh("echo '{\"status\": 3' > $AUTOPILOT_RESULT_FILE")),
    _bad("work-on-another-branch", sh("git checkout -q -B other-@ID"), RIGHT, COMMIT),
    _bad("work-detached", sh("git checkout -q --detach"), RIGHT, COMMIT),
]
LIES = [
    _bad("lie", agents=(*TALKERS, *OTHERS)),
    _bad(
        "lie-with-result",
        sh('echo \'{"status": "done", "notes": "all tests pass"}\' > $AUTOPILOT_RESULT_FILE'),
    ),
    _bad("lie-empty-commit", sh("git commit -q --allow-empty -m work")),
    _bad("lie-reverted", RIGHT, COMMIT, sh("git revert --no-edit HEAD")),
    _bad("lie-deleted-again", RIGHT, sh("rm -r work")),
    _bad("lie-touched", sh("touch README check.sh")),
    _bad("lie-ignored-file", sh("mkdir -p build && echo right > build/@ID.txt")),
    _bad(
        "lie-needs-ignored-file",
        sh("mkdir -p build && echo right > build/@ID.txt; echo more >> README"),
        keys={**BAD, "verify": "grep -q right build/lie-needs-ignored-file.txt"},
    ),
    _bad("lie-excluded", sh("echo work >> $(git rev-parse --git-path info/exclude)"), RIGHT),
    _bad("lie-unchanged-bit", WRONG, COMMIT, sh(f"git update-index --assume-unchanged {FILE}"), RIGHT),
    _bad("lie-skip-worktree", WRONG, COMMIT, sh(f"git update-index --skip-worktree {FILE}"), RIGHT),
    _bad("lie-stashed", RIGHT, sh("git stash -q -u")),
    _bad("lie-outside", sh("echo right > $TMPDIR/@ID.txt")),
    _bad(
        "lie-link-outside",
        sh("mkdir -p work; echo right > $TMPDIR/@ID.txt; ln -s $TMPDIR/@ID.txt work/@ID.txt"),
    ),
    _bad(
        "lie-nested-repository",
        sh("git init -q work && echo right > work/@ID.txt && cd work && git add -A && git commit -q -m x"),
    ),
    _bad("lie-only-mode", sh("chmod +x README"), keys={**BAD, "verify": "test -x README"}),
    _bad("wrong", WRONG, agents=(*TALKERS, *OTHERS)),
    _bad("wrong-committed", WRONG, COMMIT),
    _bad("wrong-breaks-another", RIGHT, sh("echo gone > README")),
    _bad("wrong-deletes-the-check", RIGHT, sh("git rm -q check.sh")),
    _bad("wrong-check-waits-for-input", WRONG, keys={**BAD, "verify": "read answer && sh check.sh"}),
    _bad("wrong-outside-its-claim", RIGHT, sh("echo more >> README"), keys={**BAD, "owns": ["work/**"]}),
    _bad("wrong-edits-the-check", sh("echo exit 0 > check.sh"), keys={**BAD, "owns": ["work/**"]}),
    _bad(
        "wrong-conflict-marks",
        sh("mkdir -p work; printf '<<<<<<< a\\n=======\\n>>>>>>> b\\n' > work/@ID.txt"),
    ),
    _bad(
        "partial-result",
        WRONG,
        sh('echo \'{"status": "partial", "notes": "half"}\' > $AUTOPILOT_RESULT_FILE'),
    ),
    _bad(
        "failed-result",
        WRONG,
        sh('echo \'{"status": "failed", "notes": "no way"}\' > $AUTOPILOT_RESULT_FILE'),
    ),
]
CORRECTIONS = [
    _done("corrected", WRONG, told=CORRECTED),
    _done("corrected-commit", WRONG, COMMIT, told=("NOT-RIGHT", (RIGHT, COMMIT))),
    _done("corrected-with-cache", WRONG, told=CORRECTED, script={"cached": 800}),
    _done("corrected-with-costs", WRONG, told=CORRECTED, script={"uses": [54_321, 987]}),
    _done("corrected-after-tools", sh("true"), sh("true"), WRONG, told=("NOT-RIGHT", (sh("true"), RIGHT))),
    _done(
        "corrected-claim",
        RIGHT,
        sh("echo more >> README"),
        keys={"owns": ["work/**"]},
        told=(
            "outside",
            (sh("git checkout -q HEAD README 2>/dev/null; git checkout -q $AUTOPILOT_BASE -- README"),),
        ),
    ),
    _done(
        "corrected-loud-check",
        WRONG,
        told=CORRECTED,
        keys={"verify": "sh check.sh corrected-loud-check || { seq 200000; echo NOT-RIGHT; exit 1; }"},
    ),
    _done(
        "corrected-slow-check",
        WRONG,
        told=CORRECTED,
        keys={"verify": "sleep 3; sh check.sh corrected-slow-check"},
    ),
    _done("corrected-many-results", WRONG, sh("sleep 3", background=True), told=CORRECTED, agents=CLAUDE),
]
TALK = [
    _bad("asks", say("Which database should I use, SQLite or Postgres?"), agents=(*TALKERS, *OTHERS[:3])),
    _bad("asks-after-looking", sh("ls"), say("There are two folders. Which one should I change?")),
    _bad("asks-for-permission", say("May I delete old.txt? Please confirm before I continue.")),
    _bad("asks-after-wrong-work", WRONG, say("Is this what you want, or should it say something else?")),
    _bad("gives-up", say("I cannot do this: the instructions contradict each other.")),
    _bad("says-nothing", say(" ")),
    _bad("refuses", {"refuse": "I will not do that."}, agents=CLAUDE),
    _done("refuses-once", {"refuse": "No."}, told=("This is a new conversation.", (RIGHT,)), agents=CLAUDE),
    _done("denied-tool", sh("ls / > /dev/null"), {"write": [FILE, "right\n"]}, part="edit", agents=CLAUDE),
    _bad("denied-everything", sh("curl http://127.0.0.1:9/"), part="edit", agents=CLAUDE),
    _done("edit-and-commit", {"write": [FILE, "right\n"]}, COMMIT, part="edit"),
    _done("edit-sandboxed", {"write": [FILE, "right\n"]}, part="edit"),
    _bad("edit-lie", part="edit"),
    _bad("edit-wrong", {"write": [FILE, "wrong\n"]}, part="edit"),
]
OUTPUT = [
    _done("loud-tool", sh("seq 700000"), RIGHT),
    _done("loud-line", sh("head -c 3000000 /dev/zero | tr '\\0' x"), RIGHT),
    _done("binary-output", sh("head -c 200000 /dev/urandom"), RIGHT),
    _done("many-tools", *[sh("true")] * 25, RIGHT),
    _done(
        "fake-events",
        sh("""echo '{"type":"result","subtype":"success","is_error":true,"total_cost_usd":900}'"""),
        RIGHT,
    ),
    _done("fake-turns", sh("""echo '{"type":"turn.failed","error":{"message":"status 401"}}'"""), RIGHT),
    _done("fake-key", sh("echo sk-ant-api03-scripted-0123456789 > work-key.txt; rm work-key.txt"), RIGHT),
]
PROCESSES = [
    _done("server-in-background", RIGHT, sh("sleep @NAP", background=True), agents=CLAUDE),
    _done("server-with-nohup", RIGHT, sh("nohup sleep @NAP > /dev/null 2>&1 &")),
    _done("server-in-own-session", RIGHT, sh("setsid -f sleep @NAP > /dev/null 2>&1")),
    _done("server-without-marks", RIGHT, sh("env -i /usr/bin/setsid -f /bin/sleep @NAP > /dev/null 2>&1")),
    _done(
        "server-that-ignores-signals",
        RIGHT,
        sh("setsid -f sh -c \"trap '' TERM INT HUP; sleep @NAP; sleep @NAP\" > /dev/null 2>&1"),
    ),
    _done("server-twice-forked", RIGHT, sh("(setsid sh -c '(sleep @NAP &) &' > /dev/null 2>&1 &)")),
    _done(
        "commit-beside-server",
        RIGHT,
        COMMIT,
        sh("setsid -f sh -c 'while :; do date > noise.txt; sleep 0.2; done; sleep @NAP' > /dev/null 2>&1"),
    ),
    _done(
        "agent-killed", sh("test -e $TMPDIR/@ID || { touch $TMPDIR/@ID; kill -9 $PPID; }"), RIGHT, lossy=True
    ),
    _done(
        "agent-killed-after-work",
        RIGHT,
        sh("test -e $TMPDIR/@ID || { touch $TMPDIR/@ID; kill -9 $PPID; }"),
        lossy=True,
    ),
    _done(
        "agent-killed-after-commit",
        RIGHT,
        COMMIT,
        sh("test -e $TMPDIR/@ID || { touch $TMPDIR/@ID; kill -9 $PPID; }"),
        lossy=True,
    ),
    _done(
        "agent-terminated",
        RIGHT,
        sh("test -e $TMPDIR/@ID || { touch $TMPDIR/@ID; kill $PPID; sleep 2; }"),
        lossy=True,
    ),
]
GIT = "$(git rev-parse --git-dir)"
COMMON = "$(git rev-parse --git-common-dir)"
DAMAGE = [
    _done("lock-of-index", RIGHT, sh(f"touch {GIT}/index.lock")),
    _done("lock-of-head", RIGHT, sh(f"touch {GIT}/HEAD.lock")),
    _done("lock-of-branch", RIGHT, sh("touch $(git rev-parse --git-path refs/heads/autopilot/@ID.lock)")),
    _done("commit-killed", RIGHT, sh("git add -A; GIT_EDITOR='kill -9 $PPID; true' git commit")),
    _done("index-nonsense", RIGHT, sh(f"echo nonsense > {GIT}/index")),
    _done("index-deleted", RIGHT, sh(f"rm {GIT}/index")),
    _bad("git-file-deleted", RIGHT, sh("rm -f .git")),
    _bad("git-file-elsewhere", RIGHT, sh("echo 'gitdir: /nowhere' > .git")),
    _bad("head-elsewhere", RIGHT, sh(f"echo 'ref: refs/heads/main' > {GIT}/HEAD")),
    _bad("branch-deleted", RIGHT, sh("git update-ref -d HEAD")),
    _bad("objects-deleted", RIGHT, COMMIT, sh(f"rm -rf {COMMON}/objects/??")),
    # Not beside others: a story that is committed in the same moment fails, and rightly so.
    _bad(
        "all-of-git-deleted",
        RIGHT,
        sh(f"rm -rf {COMMON}/refs {COMMON}/objects {COMMON}/HEAD"),
        part="wrecks",
    ),
    _done("moves-main", RIGHT, COMMIT, sh("git update-ref refs/heads/main HEAD")),
    _done("done-before-others", RIGHT, part="branches"),
    _done(
        "moves-a-finished-branch",
        RIGHT,
        sh("git update-ref refs/heads/autopilot/done-before-others $(git rev-list --max-parents=0 HEAD)"),
        keys={"depends_on": ["done-before-others"]},
        part="branches",
    ),
    _done(
        "deletes-a-finished-branch",
        RIGHT,
        sh("git update-ref -d refs/heads/autopilot/done-before-others; git branch -D done-before-others"),
        keys={"depends_on": ["done-before-others"]},
        part="branches",
    ),
    _done(
        "writes-a-hook",
        RIGHT,
        sh(f"printf 'exit 1' > {COMMON}/hooks/pre-commit; chmod +x {COMMON}/hooks/pre-commit"),
    ),
    _done("writes-configuration", RIGHT, sh("git config core.bare true; git config commit.gpgsign true")),
    _done(
        "hooks-path-of-its-own",
        sh(
            "mkdir -p hooks; printf 'exit 1' > hooks/pre-commit; chmod +x hooks/pre-commit; "
            "git config core.hooksPath hooks"
        ),
        RIGHT,
    ),
    _bad(
        "rebase-left-open",
        RIGHT,
        COMMIT,
        sh("GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i --root < /dev/null; true"),
    ),
    _done("deletes-the-worktrees-of-others", RIGHT, sh("rm -rf ../* 2> /dev/null; git worktree prune")),
    _bad("deletes-itself", RIGHT, sh('rm -rf "$PWD"/* "$PWD"/.[a-z]* 2> /dev/null; true')),
]
CASES = [*WORK, *LIES, *CORRECTIONS, *TALK, *OUTPUT, *PROCESSES, *DAMAGE]
