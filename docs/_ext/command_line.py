"""The command line as a page, generated from the commands."""

from __future__ import annotations

import inspect
from typing import Any

from typer.main import get_command

from pipeline.cli.app import app


def markdown() -> str:
    """Return a section per command: help, arguments and options."""
    root = get_command(app)
    return "\n".join(_section(f"voiceclaim {name}", command, "##") for name, command in _commands(root).items())


def _commands(group: Any) -> dict[str, Any]:
    return dict(group.commands)


def _section(name: str, command: Any, level: str) -> str:
    if hasattr(command, "commands"):
        parts = [_section(f"{name} {below}", child, f"{level}#") for below, child in _commands(command).items()]
        return "\n".join([f"{level} {name}", "", *_words(command), "", *parts])
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *(_optional(p) for p in arguments), "[OPTIONS]"])
    lines = [f"{level} {name}", "", "```text", usage, "```", "", *_words(command), ""]
    shown = [(_optional(p), p.help or "", "") for p in arguments]
    shown += [(_names(p), p.help or "", _default(p)) for p in command.params if p.param_type_name == "option"]
    lines += ["| | | default |", "|---|---|---|"]
    lines += [f"| `{_cell(names)}` | {_cell(help_)} | {_cell(default)} |" for names, help_, default in shown]
    return "\n".join([*lines, ""])


def _words(command: Any) -> list[str]:
    """Return the command's help, which is Markdown, with examples as code."""
    text, _, examples = inspect.cleandoc(command.help or "").partition("\nExamples:\n")
    lines = [_escaped(line) for line in text.strip().splitlines()]
    if examples:
        shown = [line.removeprefix("- ").strip("`") for line in examples.strip().splitlines()]
        lines += ["", "```text", *shown, "```"]
    return lines


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def _optional(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _names(option: Any) -> str:
    names = "/".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    return f"{names} {option.metavar or option.name.upper()}"


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.required:
        return "must be given"
    if option.default is None or option.is_flag or callable(option.default):
        return ""
    return f"`{option.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
