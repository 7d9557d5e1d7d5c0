"""The completion script for zsh."""

from collections.abc import Iterator, Sequence

from runner.cli.completion.grammar import Command, Flag, Positional, Values
from runner.cli.overview import COMPLETE, DEFAULT_COMMAND

_SCRIPT = r"""#compdef autopilot-multi
# zsh completion for autopilot-multi, written by `autopilot-multi completion zsh`
_autopilot-multi_names() {
    local kind result=1
    local -a found
    for kind in "$@"; do
        case $kind in
            files) _files && result=0 ;;
            folders) _files -/ && result=0 ;;
            *)
                found=("${(@f)$("${words[1]/#\~/$HOME}" @COMPLETE@ $kind "${(@)words}" 2>/dev/null)}")
                found=("${(@)found:#}")
                found=("${(@)${(@)found//:/\\:}/$'\t'/:}")
                (( $#found )) && _describe -t $kind $kind found && result=0 ;;
        esac
    done
    return result
}

_autopilot-multi_first() {
    local -a found
    found=(
@COMMANDS@
    )
    local result=1
    _describe -t commands command found && result=0
    _autopilot-multi_names stories && result=0
    [[ -n $PREFIX ]] && _files && result=0
    return result
}

_autopilot-multi() {
    local curcontext=$curcontext state state_descr line command=
    local -a names valued
    local -A opt_args
    names=(@NAMES@)
    valued=(@VALUED@)
    integer at
    for (( at = 2; at < CURRENT; at++ )); do
        if [[ $words[at] == -- ]]; then
            break
        elif [[ $words[at] == -* ]]; then
            (( $valued[(Ie)$words[at]] )) && (( at++ ))
        else
            if (( $names[(Ie)$words[at]] )); then
                command=$words[at]
                # Without the command, what is left has the form that _arguments knows.
                words[at]=()
                (( CURRENT-- ))
            else
                command=@DEFAULT@
            fi
            break
        fi
    done
    case $command in
@CASES@
    esac
}

if [[ $funcstack[1] == _autopilot-multi ]]; then
    _autopilot-multi "$@"
else
    compdef _autopilot-multi autopilot-multi
fi
"""


def script(commands: Sequence[Command]) -> str:
    """Return the script."""
    valued = {name for command in commands for flag in command.flags if flag.values for name in flag.names}
    summaries = (f"{command.name}:{command.summary.replace(':', '')}" for command in commands)
    parts = {
        "COMPLETE": COMPLETE,
        "DEFAULT": DEFAULT_COMMAND,
        "COMMANDS": "\n".join(f"        {_quoted(text)}" for text in summaries),
        "NAMES": " ".join(command.name for command in commands),
        "VALUED": " ".join(sorted(valued)),
        "CASES": "\n".join(_cases(commands)),
    }
    text = _SCRIPT
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _cases(commands: Sequence[Command]) -> Iterator[str]:
    default = next(command for command in commands if command.name == DEFAULT_COMMAND)
    first = ["'--version[print the version]'", "'*:story:_autopilot-multi_first'"]
    yield _case("''", [*map(_flag, default.flags), *first])
    for command in commands:
        yield _case(command.name, [*map(_flag, command.flags), *map(_positional, command.positionals)])


def _case(name: str, specs: Sequence[str]) -> str:
    lines = "".join(f" \\\n                {spec}" for spec in specs)
    return f"        {name})\n            _arguments -s{lines} ;;"


def _flag(flag: Flag) -> str:
    others = f"({' '.join(flag.names)})" if len(flag.names) > 1 and not flag.repeats else ""
    start = "*" if flag.repeats else others
    # A long flag takes its value after an equal sign or as the next word, a short one as the next word.
    names = [name + ("=" if flag.values and name.startswith("--") else "") for name in flag.names]
    spelled = f"{{{','.join(names)}}}" if len(names) > 1 else names[0]
    about = f"[{_escaped(flag.help)}]" + (_action(flag.values) if flag.values else "")
    return f"{_quoted(start)}{spelled}{_quoted(about)}" if start else f"{spelled}{_quoted(about)}"


def _positional(positional: Positional) -> str:
    return _quoted(("*" if positional.repeats else ":") + _action(positional.values))


def _action(values: Values) -> str:
    title = _escaped(values.title)
    if values.words:
        return f":{title}:({' '.join(values.words)})"
    return f":{title}:_autopilot-multi_names {' '.join(values.kinds)}" if values.kinds else f":{title}: "


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:").replace("[", "\\[").replace("]", "\\]")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
