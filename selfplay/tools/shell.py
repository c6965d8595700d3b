"""The tool `bash`: commands in a shell that remembers, without a process that stays.

What is covered: one fresh bash a command, in the work tree and without a terminal, that is given what the last one had:
working directory, variables (exported or not), functions and `shopt` options. It writes them down after its command
ended; so where a command runs out of time, is killed, or ends the shell itself (`exit`, `exec`, `set -e`), the next one
starts as this one did, and the answer says so. Nothing outlives its command, so nothing hangs on what was left in the
background; standard input is empty. A shell that stayed (`Sandbox.serve`) would have to be trusted with saying when a
command ended, and would keep other tools out where a backend runs one thing at a time.

What a shell remembers is a file of the candidate's own, which it may spoil: then it starts anew, in the work tree.

What is not covered: jobs, traps, `set` options, open files and variables that bash was given and that were unset; they
end with their command.

Example:
    >>> (await Bash(place, Allowance()).call({"command": "cd pkg && ls"})).text  # doctest: +SKIP
    'core.py\\n[exit code 0]'
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from selfplay.sandbox import SandboxInfraError
from selfplay.tools import Allowance, Answer, ToolSpec
from selfplay.tools.place import Place
from selfplay.tools.text import joined, parts_of, plain
from selfplay.types import Result, record

MAX_COMMAND = 1 << 20
"""Longest command, in characters."""
_ENV = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
_BEGIN = r"""
__selfplay_token=$1 __selfplay_old=${TMPDIR:-/tmp}/.selfplay-shell-$2 __selfplay_new=${TMPDIR:-/tmp}/.selfplay-shell-$3;
__selfplay_begun=fresh __selfplay_whole= __selfplay_lost=;
IFS= read -r -d '' __selfplay_command;
exec </dev/null;
if [[ $2 != 0 ]]; then
  set --; __selfplay_begun=lost;
  if [[ -f $__selfplay_old ]]; then
    source "$__selfplay_old" >/dev/null 2>&1;
    [[ -n $__selfplay_whole ]] && __selfplay_begun=restored$__selfplay_lost;
  fi;
fi;
set --;
printf '%s begun %s\n' "$__selfplay_token" "$__selfplay_begun" >&2;
eval "$__selfplay_command" 2>&1
"""
_END = r"""
__selfplay_status=$?
POSIXLY_CORRECT=1
set +eufvx
unset -f unset set trap eval exec printf declare compgen shopt mapfile source builtin read '[' exit :
set +o posix
trap - EXIT DEBUG ERR RETURN
unset POSIXLY_CORRECT
mapfile -t __selfplay_names < <(compgen -v)
mapfile -t __selfplay_functions < <(compgen -A function)
__selfplay_kept=lost
if {
  shopt -p
  for __selfplay_name in "${__selfplay_names[@]}"; do
    case $__selfplay_name in
      BASH*|EUID|PPID|UID|SHELLOPTS|POSIXLY_CORRECT|_|__selfplay_*|SECONDS|RANDOM|SRANDOM|LINENO|EPOCH*|FUNCNAME) ;;
      DIRSTACK|GROUPS|PIPESTATUS|HISTCMD|OPTIND|OPTERR|SHLVL|PWD|OLDPWD|COMP_*) ;;
      *) declare -p "$__selfplay_name" ;;
    esac
  done
  for __selfplay_name in "${__selfplay_functions[@]}"; do declare -f -- "$__selfplay_name"; done
  declare -Fx
  printf 'cd -- %q || __selfplay_lost=-elsewhere\nOLDPWD=%q\n' "$PWD" "$OLDPWD"
  printf '__selfplay_whole=1\n'
} >"$__selfplay_new"; then __selfplay_kept=kept; fi 2>/dev/null
printf '%s done %s %s\n' "$__selfplay_token" "$__selfplay_status" "$__selfplay_kept" >&2
exit "$__selfplay_status"
"""
_SCRIPT = " ".join(_BEGIN.split("\n")) + _END
# note: the command is read in the first line, so that bash counts its lines from one. What a candidate names like a
# builtin is let go of in bash's POSIX mode, in which `unset` cannot be replaced.


@record
class _Told:
    """What the script said of itself."""

    begun: str
    """How it found what it was to remember; empty where it did not come so far."""
    status: int | None
    """The command's; None where the shell did not outlive it."""
    kept: bool


class Bash:
    """The tool `bash`."""

    def __init__(self, place: Place, allowance: Allowance) -> None:
        self._place = place
        self._allowance = allowance
        self._slot = 0
        """Under what number the last state lies; 0: there is none."""
        self._started = False
        self.spec = ToolSpec(
            name="bash",
            text="Runs a command in a bash shell that begins in the work tree. Working directory, variables and "
            "functions last from call to call; processes end with the call that started them. There is no terminal "
            f"and no input, and a command may take {allowance.command_seconds:g} s.",
            parameters={
                "type": "object",
                "properties": {"command": {"type": "string", "description": "what bash is to run"}},
                "required": ["command"],
            },
        )

    async def call(self, arguments: Mapping[str, Any]) -> Answer:
        """Run a command.

        Raises:
            SandboxInfraError: the machine failed, or the sandbox has no bash.
        """
        command = str(arguments["command"])
        if "\0" in command or len(command) > MAX_COMMAND:
            what = "holds a NUL character" if "\0" in command else f"is longer than {MAX_COMMAND} characters"
            return Answer(text=f"the command {what}", refused=True)
        token, new = secrets.token_hex(8), 2 if self._slot == 1 else 1
        script = ["-c", _SCRIPT, "bash", token, str(self._slot), str(new)]
        result = await (await self._place.sandbox()).exec(
            ["bash", "--noprofile", "--norc", *script],
            timeout_seconds=self._allowance.command_seconds,
            env=_ENV,
            stdin=command.encode(),
            output_limit=max(1 << 12, 4 * self._allowance.output_chars),
        )
        told = _told(result.stderr, token)
        if not self._started and not told.begun and result.exit_code in (126, 127):
            raise SandboxInfraError(
                f"the sandbox has no bash: {result.stderr.strip()[-200:]}", hint="install bash in the image"
            )
        self._started = True
        notes = [*_notes(told, had=self._slot), *_endings(told, result, seconds=self._allowance.command_seconds)]
        if not told.begun or told.begun == "lost":
            self._slot = 0
        if told.status is not None and told.kept:
            self._slot = new
        code = told.status if told.status is not None else result.exit_code
        return Answer(text=self._text(result, notes, code), exit_code=code, seconds=result.seconds)

    def _text(self, result: Result, notes: Sequence[str], code: int | None) -> str:
        said = "\n".join([*notes, *([] if code is None else [f"[exit code {code}]"])])
        limit = self._allowance.output_chars
        head, tail = (plain(part) for part in parts_of(result.stdout, result.stdout_dropped))
        end = "" if not (tail or head) or (tail or head).endswith("\n") else "\n"
        room = max(0, limit - len(said) - len(end))
        return (joined(head, tail, gone=result.stdout_dropped, limit=room) + end + said)[:limit]


def _told(stderr: str, token: str) -> _Told:
    begun, status, kept = "", None, False
    for line in stderr.splitlines():
        match line.split():
            case [first, "begun", how] if first == token:
                begun = how
            case [first, "done", code, how] if first == token and code.isdecimal():
                status, kept = int(code), how == "kept"
    return _Told(begun=begun, status=status, kept=kept)


def _notes(told: _Told, *, had: int) -> list[str]:
    """What a policy has to know of how its command began."""
    if had and told.begun in ("", "lost"):
        return ["[what the shell remembered cannot be read: it starts anew, in the work tree]"]
    if told.begun.endswith("-elsewhere"):
        return ["[the working directory is gone: the command ran in the work tree]"]
    return []


def _endings(told: _Told, result: Result, *, seconds: float) -> list[str]:
    """What a policy has to know of how its command ended."""
    notes = []
    if result.oom_killed:
        notes.append("[out of memory: a process was killed]")
    if result.timed_out:
        notes.append(
            f"[no end within {seconds:g} s: it was killed with all that it started; "
            "the shell is again as it was before this command]"
        )
    elif told.status is None:
        notes.append(
            "[the command ended the shell itself (exit, exec, set -e or a signal); "
            "it was started again as it was before this command]"
        )
    elif not told.kept:
        notes.append("[the shell's state could not be written down; it is again as it was before this command]")
    return notes
