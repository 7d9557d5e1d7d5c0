"""`completion`: what real shells offer on a line, and how quickly the names of stories and runs come."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

ROOT = Path(__file__).parents[2]

# All offers of one shell process: each line of the input is completed, and its answer is one line.
_BASH = """
source "$1"
while IFS= read -r line; do
    read -ra COMP_WORDS <<< "${line//=/ = }"
    [[ $line == *[\\ =] ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _autopilot_multi
    echo "${COMPREPLY[@]}"
done
"""
_FISH = """
source $argv[1]
while read -l line
    echo (complete -C $line | string split -f 1 \\t | string replace -r '^--[a-z-]+=' '')
end
"""
# zsh completes only on a terminal: one is made, and its own `compadd` tells every match. A line that is typed
# before the line editor is ready would be lost, so the editor itself tells when it is.
_ZSH = r"""
zmodload zsh/zpty
cat > $2/setup <<'END'
PROMPT=
autoload -Uz compinit
compinit -u -D
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    typeset -a hits
    builtin compadd -A hits "$@" 2>/dev/null
    print -rn -- "$hits " >> $folder/hits
    builtin compadd "$@"
}
ready() { print > $folder/done }
ask() { zle complete-word; zle kill-whole-line; ready }
zle -N ask
zle -N zle-line-init ready
bindkey '^I' ask
END
type_in() {
    zpty -n -w shell "$1"
    until [[ -e $2/done ]]; do sleep 0.01; done
    rm $2/done
}
zpty shell zsh -f -i
type_in "folder=$2 fpath=(${1:h} \$fpath); source $2/setup"$'\n' $2
while IFS= read -r line; do
    : > $2/hits
    type_in "$line"$'\t' $2
    print -r -- "$(<$2/hits)"
done
"""
SHELLS = {
    "bash": ["bash", "--norc", "-c", _BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", _ZSH, "zsh"],
    "fish": ["fish", "--no-config", "-c", _FISH],
}
OFFERED = {
    "autopilot-multi sta": {"status", "state"},
    "autopilot-multi logs ": {"api-1", "web-2", "web-3"},
    "autopilot-multi stop w": {"web-2", "web-3"},
    "autopilot-multi --only a": {"api-1"},
    "autopilot-multi status ": {"RUN"},
    "autopilot-multi -q logs api-1 --run ": {"RUN"},
    "autopilot-multi run --enforce d": {"divert", "deny", "detect"},
    "autopilot-multi --enforce=de": {"deny", "detect"},
    "autopilot-multi report --format j": {"junit"},
    "autopilot-multi plan --max-s": {"--max-stories", "--max-sessions"},
    "autopilot-multi --base ma": {"main"},
    "autopilot-multi flows show gr": {"greenfield"},
    "autopilot-multi config max-s": {"max-stories", "max-sessions"},
    "autopilot-multi state check READ": {"README.md"},
    "autopilot-multi -C sto": {"stories"},
    "autopilot-multi api-1 we": {"web-2", "web-3"},
}


@pytest.fixture
def on_path(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with stories and a run, and put the program on PATH; return a folder for scripts."""
    write_story(repo, "api-1", command="echo a > a.txt", title="Say: hi")
    (repo / "stories" / "list.yaml").write_text(
        "stories:\n- {id: web-2, command: echo > b}\n- id: web-3\n  command: echo > c\n"
    )
    commit_stories(repo)
    assert run(repo, "api-1").code == 0
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "autopilot-multi").write_text(
        f'#!/bin/sh\nexec {sys.executable} {ROOT}/runner/__main__.py "$@"\n'
    )
    (folder / "autopilot-multi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


@pytest.mark.parametrize("shell", SHELLS)
def test_real_shells_offer_ids_choices_and_files(repo: Path, on_path: Path, shell: str) -> None:
    """Stories, runs, choices, flags, branches and files, each where it fits."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = on_path / "_autopilot-multi"
    script.write_text(run(repo, "completion", shell).out)
    run_id = git(repo, "log", "-1", "--format=%(trailers:key=Autopilot-Run,valueonly)", "autopilot/api-1")
    done = subprocess.run(
        [*SHELLS[shell], str(script), str(on_path)],
        cwd=repo,
        input="".join(f"{line}\n" for line in OFFERED),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    offered = dict(zip(OFFERED, done.stdout.splitlines(), strict=True))
    found = {line: {word.rstrip("/") for word in words.split()} for line, words in offered.items()}
    assert found == {
        line: {run_id.strip() if word == "RUN" else word for word in words} for line, words in OFFERED.items()
    }
    assert not done.stderr


def test_names_come_without_heavy_modules(repo: Path, on_path: Path) -> None:
    """A shell waits for them at each key: what takes long to load is not loaded, and no error is printed."""
    ask = (
        "import sys; from runner.cli.main import run_program; run_program(['__complete', *sys.argv[1:]]); "
        "print(*{'argparse', 'msgspec', 'pathlib', 'typing', 'yaml'} & set(sys.modules), file=sys.stderr)"
    )

    def names(kind: str, cwd: Path, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"import sys; sys.path.append({str(ROOT)!r}); {ask}", kind, *words],
            cwd=cwd,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "\n"
        return done.stdout

    assert names("stories", repo).startswith("api-1\tSay: hi\nweb-2\nweb-3\n")
    assert names("stories", on_path, "autopilot-multi", "-C", str(repo)).startswith("api-1\t")
    assert names("stories", on_path) == "", "there is no repository"
    assert names("runs", repo).count("\n") == 1
    (repo / ".git" / "autopilot" / "journal.db").write_text("damaged")
    assert names("runs", repo) == ""
    assert names("stories", repo).startswith("api-1\t")
