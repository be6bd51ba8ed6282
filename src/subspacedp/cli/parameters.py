"""Arguments that are what they are: texts and paths need no validator to be built.

Typer builds a pydantic validator for every parameter of a command, given or not, which takes longer
than to verify a small release. Here one is built when a value needs it. An attribute of Typer's
parameters is replaced for this; a version of Typer without it builds them all, and does the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


class _Unbuilt:
    """What makes a value of an argument: Typer's validator, unless there is nothing to do."""

    def __init__(self, kind: object, build: Callable[[], Any]) -> None:
        self._kind, self._build = kind, build

    def __call__(self) -> _Unbuilt:
        return self  # as the method does whose place this takes

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs != 1
        if value is None:
            return () if several else None
        if isinstance(value, str) and not several:
            if self._kind is str:
                return value
            if self._kind is Path and (os.access(value, os.R_OK) or not os.path.lexists(value)):
                return Path(value)
        return self._build().coerce(value, param=param, ctx=ctx)


def _lightened(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        build = getattr(parameter, "get_runtime_param", None)
        if build is not None and not isinstance(build, _Unbuilt):
            parameter.get_runtime_param = _Unbuilt(parameter.type_descriptor.annotation, build)
    return parameters


class Commands(TyperGroup):
    """A group of commands whose parameters are built when a value needs it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Those of the group."""
        return _lightened(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, with its parameters and `--help`."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _lightened(command.get_params(ctx))
        return command
