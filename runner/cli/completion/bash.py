"""The completion script for bash, also for the old one of macOS."""

from collections.abc import Iterable, Iterator, Sequence

from runner.cli.completion.grammar import Command, Values
from runner.cli.overview import COMPLETE, DEFAULT_COMMAND

_SCRIPT = r"""# bash completion for autopilot-multi, written by `autopilot-multi completion bash`
_autopilot_multi_offer() { # words, kinds
    local kind line
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -W "$1" -- "$cur")
    for kind in $2; do
        case $kind in
            files | folders)
                compopt -o filenames 2>/dev/null
                [[ $kind == files ]] && kind=-f || kind=-d
                while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen $kind -- "$cur") ;;
            *)
                while IFS=$'\t' read -r line _; do
                    [[ $line == "$cur"* ]] && COMPREPLY+=("$line")
                done < <("${COMP_WORDS[0]/#\~/$HOME}" @COMPLETE@ "$kind" "${COMP_WORDS[@]}" 2>/dev/null) ;;
        esac
    done
}

_autopilot_multi() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local valued=" @VALUED@ " commands=" @COMMANDS@ "
    local command="" place=0 closed="" first="" word i
    COMPREPLY=()
    # bash splits --flag=value at the equal sign.
    if [[ $cur == "=" ]]; then
        cur=""
    elif [[ $prev == "=" && $COMP_CWORD -gt 1 ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == "=" ]]; then
            ((i++))
        elif [[ $word == "--" ]]; then
            closed=1
        elif [[ $word == -* && -z $closed ]]; then
            [[ $valued == *" $word "* && ${COMP_WORDS[i+1]} != "=" ]] && ((i++))
        elif [[ -z $first && -z $closed && $commands == *" $word "* ]]; then
            command=$word first=1
        else
            ((place++))
            first=1
        fi
    done
    if [[ -z $closed && $valued == *" $prev "* ]]; then
        case $command,$prev in
@FLAG_VALUES@
        esac
        return
    fi
    if [[ $cur == -* && -z $closed ]]; then
        case $command in
@FLAGS@
        esac
        return
    fi
    [[ -z $first && -z $closed ]] && _autopilot_multi_offer "$commands" ""
    [[ -z $command && -z $cur && -z $closed ]] && { _autopilot_multi_offer "" stories; return; }
    case $command,$place in
@POSITIONALS@
    esac
}
complete -F _autopilot_multi autopilot-multi
"""


def script(commands: Sequence[Command]) -> str:
    """Return the script."""
    valued = {name for command in commands for flag in command.flags if flag.values for name in flag.names}
    parts = {
        "COMPLETE": COMPLETE,
        "VALUED": " ".join(sorted(valued)),
        "COMMANDS": " ".join(command.name for command in commands),
        "FLAG_VALUES": "\n".join(_flag_values(commands)),
        "FLAGS": "\n".join(_flags(command) for command in commands),
        "POSITIONALS": "\n".join(_positionals(commands)),
    }
    text = _SCRIPT
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _flag_values(commands: Sequence[Command]) -> Iterator[str]:
    """Yield a case for each way in which flags of some commands are completed."""
    groups: dict[str, list[str]] = {}
    for command in commands:
        for flag in command.flags:
            if flag.values and (flag.values.words or flag.values.kinds):
                patterns = (f"{name},{flag_name}" for name in _names(command) for flag_name in flag.names)
                groups.setdefault(_offer(flag.values), []).extend(patterns)
    for offer, cases in groups.items():
        yield f"            {' | '.join(cases)}) {offer} ;;"


def _flags(command: Command) -> str:
    extra = ["--version"] if command.name == DEFAULT_COMMAND else []
    names = " ".join([*(name for flag in command.flags for name in flag.names), *extra])
    return f'            {" | ".join(_names(command))}) _autopilot_multi_offer "{names}" "" ;;'


def _positionals(commands: Iterable[Command]) -> Iterator[str]:
    for command in commands:
        for place, positional in enumerate(command.positionals):
            if positional.values.words or positional.values.kinds:
                at = "*" if positional.repeats else str(place)
                patterns = " | ".join(f"{name},{at}" for name in _names(command))
                yield f"        {patterns}) {_offer(positional.values)} ;;"


def _names(command: Command) -> tuple[str, ...]:
    """Return how a command stands on the line; the default one also without its name."""
    return (command.name, '""') if command.name == DEFAULT_COMMAND else (command.name,)


def _offer(values: Values) -> str:
    return f'_autopilot_multi_offer "{" ".join(values.words)}" "{" ".join(values.kinds)}"'
