"""``fencepost completion``: prints a shell's completion script, generated from the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from shlex import quote

from fencepost import errors
from fencepost.cli import output
from fencepost.cli.arguments import option
from fencepost.language import loading

SHELLS = {
    "bash": "fencepost completion bash > ~/.local/share/bash-completion/completions/fencepost",
    "zsh": "fencepost completion zsh > ~/.fencepost.zsh    # and source ~/.fencepost.zsh in ~/.zshrc, after compinit",
    "fish": "fencepost completion fish > ~/.config/fish/completions/fencepost.fish",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``fencepost completion``."""
    parser.description = "Print a script that completes commands and options in a shell:\n" + "\n".join(
        f"  {how}" for how in SHELLS.values()
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    option(parser, "shell", "the shell", choices=list(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from fencepost.cli.main import whole_parser

    scripts = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    output.say(scripts[args.shell](list(_commands(whole_parser()))))
    return errors.HOLDS


@dataclass
class Command:
    """The completions of a command: subcommands, options, and words for its arguments."""

    path: str
    commands: dict[str, str] = field(default_factory=dict)
    options: list[argparse.Action] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Command]:
    """A parser and all parsers below it, each once."""
    found = Command(path)
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below.update(action.choices)
            found.commands.update({choice.dest: choice.help or "" for choice in action._choices_actions})
        elif action.option_strings:
            if action.help is not argparse.SUPPRESS:
                found.options.append(action)
        else:
            found.words += loading.SHIPPED if action.dest == "protocol" else map(str, action.choices or ())
    yield found
    for name, own in below.items():
        yield from _commands(own, f"{path} {name}".strip())


def _flags(action: argparse.Action) -> list[str]:
    return [flag for flag in action.option_strings if flag.startswith("--")] or list(action.option_strings)


def _takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


# -- bash and zsh -----------------------------------------------------------------------------------------------------


def _bash(commands: list[Command]) -> str:
    """A bash function with the words of each command and of options with choices. It completes anything else as a
    file name.
    """
    cases, values = [], []
    for command in commands:
        words = " ".join([*command.commands, *command.words])
        flags = " ".join(flag for action in command.options for flag in _flags(action))
        cases.append(f"    {quote(command.path)}) words={quote(words)}; options={quote(flags)} ;;")
        for action in command.options:
            if _takes_value(action):
                patterns = "|".join(quote(f"{command.path} {flag}".strip()) for flag in action.option_strings)
                values.append(f"    {patterns}) value=1; words={quote(' '.join(map(str, action.choices or ())))} ;;")
    paths = "|".join(quote(command.path) for command in commands if command.path)
    return "\n".join(
        [
            "_fencepost() {",
            "  local word next path='' words='' options='' value='' at",
            '  local current="${COMP_WORDS[COMP_CWORD]}"',
            "  for ((at = 1; at < COMP_CWORD; at++)); do",
            '    next="${path:+$path }${COMP_WORDS[at]}"',
            f'    case "$next" in {paths}) path="$next" ;; esac',
            "  done",
            '  case "$path" in',
            *cases,
            "  esac",
            '  case "${path:+$path }${COMP_WORDS[COMP_CWORD - 1]}" in',
            *values,
            "  esac",
            '  [[ -z $value && $current == -* ]] && words="$options"',
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -o bashdefault -F _fencepost fencepost",
        ]
    )


def _zsh(commands: list[Command]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(commands)


# -- fish -------------------------------------------------------------------------------------------------------------


def _fish(commands: list[Command]) -> str:
    """A fish line for each word and option, conditional on the words of its command."""
    lines = []
    for command in commands:
        typed = command.path.split()
        test = [f"__fish_seen_subcommand_from {word}" for word in typed]
        if command.commands:
            test.append(f"not __fish_seen_subcommand_from {' '.join(command.commands)}")
        when = f" -n {quote('; and '.join(test))}" if test else ""
        for name, purpose in command.commands.items():
            lines.append(f"complete -c fencepost -f{when} -a {name}{_described(purpose)}")
        if command.words:
            lines.append(f"complete -c fencepost{when} -a {quote(' '.join(command.words))}")
        for action in command.options:
            flags = "".join(
                f" -l {flag[2:]}" if flag[:2] == "--" else f" -s {flag[1:]}" for flag in action.option_strings
            )
            value = (
                f" -xa {quote(' '.join(map(str, action.choices)))}" if action.choices else " -r" * _takes_value(action)
            )
            lines.append(f"complete -c fencepost{when}{flags}{value}{_described(action.help or '')}")
    return "\n".join(lines)


def _described(text: str) -> str:
    """The first words of a help text, as a description."""
    first = re.split(r"[;:(]|, by default", text.replace("%%", "%"))[0].strip()
    return f" -d {quote(first)}" if first else ""
