"""The completion script for fish."""

from collections.abc import Iterator, Sequence

from runner.cli.completion.grammar import Command, Flag, Values
from runner.cli.overview import COMPLETE, DEFAULT_COMMAND

_SCRIPT = r"""# fish completion for autopilot-multi, written by `autopilot-multi completion fish`
function __autopilot_multi_line --description 'print the command on the line, and how many arguments it has'
    set -l words (commandline -opc)
    set -e words[1]
    set -l command ''
    set -l place 0
    set -l first 1
    set -l skip 0
    for word in $words
        if test $skip = 1
            set skip 0
        else if test $word = --
            set first 0
        else if string match -q -- '-*' $word
            contains -- $word @VALUED@; and set skip 1
        else if test $first = 1; and contains -- $word @COMMANDS@
            set command $word
            set first 0
        else
            set place (math $place + 1)
            set first 0
        end
    end
    echo -- $command
    echo -- $place
end
function __autopilot_multi_in
    set -l line (__autopilot_multi_line)
    contains -- "$line[1]" $argv
end
function __autopilot_multi_at
    set -l line (__autopilot_multi_line)
    test "$line[1]" = "$argv[1]"; and test $line[2] -ge $argv[2]; and test $line[2] -le $argv[3]
end
function __autopilot_multi_names
    set -l words (commandline -opc)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    for kind in $argv
        if test $kind = folders
            __fish_complete_directories (commandline -ct)
        else
            command $program @COMPLETE@ $kind $words 2>/dev/null
        end
    end
end
complete -c autopilot-multi -f
complete -c autopilot-multi -n '__autopilot_multi_at "" 0 0' -l version -d 'print the version'
"""


def script(commands: Sequence[Command]) -> str:
    """Return the script."""
    valued = {name for command in commands for flag in command.flags if flag.values for name in flag.names}
    text = _SCRIPT.replace("@VALUED@", " ".join(sorted(valued))).replace("@COMPLETE@", COMPLETE)
    text = text.replace("@COMMANDS@", " ".join(command.name for command in commands))
    return text + "".join(f"complete -c autopilot-multi {line}\n" for line in _lines(commands))


def _lines(commands: Sequence[Command]) -> Iterator[str]:
    for command in commands:
        yield f"""-n '__autopilot_multi_at "" 0 0' -a {command.name} -d {_quoted(command.summary)}"""
    groups: dict[Flag, list[str]] = {}
    for command in commands:
        for flag in command.flags:
            groups.setdefault(flag, []).extend(_names(command))
    for flag, names in groups.items():
        where = f"-n {_quoted('__autopilot_multi_in ' + ' '.join(names))}"
        spelled = (f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
        yield f"{where} {' '.join(spelled)} {_taken(flag.values)}-d {_quoted(flag.help)}"
    for command in commands:
        for place, positional in enumerate(command.positionals):
            last = 1000 if positional.repeats else place
            for name in _names(command):
                where = f"__autopilot_multi_at {name} {place} {last}"
                offered = _offered(positional.values)
                if offered:
                    yield f"-n {_quoted(where)} {offered}"


def _taken(values: Values | None) -> str:
    if values is None:
        return ""
    offered = _offered(values)
    return f"-r {offered} " if "files" in values.kinds else f"-x {offered} " if offered else "-x "


def _offered(values: Values) -> str:
    kinds = [kind for kind in values.kinds if kind != "files"]
    parts = [
        "-F" if "files" in values.kinds else "",
        f"-a {_quoted(' '.join(values.words))}" if values.words else "",
        f"-a '(__autopilot_multi_names {' '.join(kinds)})'" if kinds else "",
    ]
    return " ".join(part for part in parts if part)


def _names(command: Command) -> tuple[str, ...]:
    return (command.name, '""') if command.name == DEFAULT_COMMAND else (command.name,)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
