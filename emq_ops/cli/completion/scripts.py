"""The scripts. bash and zsh share what finds out where one is; fish says the same in its own words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emq_ops.cli.completion.remembered import KINDS
from emq_ops.cli.completion.tree import FILES, CommandEntry

SHELLS = ("bash", "zsh", "fish")
_KNOWN = (*KINDS, "playbooks", FILES)


def script(
    shell: str, entries: Sequence[CommandEntry], anywhere: dict[str, str], playbooks: Iterable[str], about: str
) -> str:
    """The script of one of SHELLS. `about`: a line for its head."""
    books = " ".join(sorted(playbooks))
    if shell == "fish":
        return f"# {about}\n{_fish_tables(entries, anywhere)}\n{_FISH.replace('@PLAYBOOKS@', books)}"
    wrapper = {"bash": _BASH, "zsh": _ZSH}[shell]
    head = "#compdef emq-ops\n" if shell == "zsh" else ""
    return f"{head}# {about}\n{_tables(entries, anywhere)}\n{_FIND.replace('@PLAYBOOKS@', books)}\n{wrapper}"


def _steps(entries: Sequence[CommandEntry]) -> list[str]:
    """``noun/verb`` of every word that leads on."""
    return [f"{' '.join(entry.path[:-1])}/{entry.path[-1]}" for entry in entries if entry.path]


def _by_kind(entries: Sequence[CommandEntry]) -> dict[str, list[str]]:
    """Kind -> ``path option`` of the values that have it."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        for option, kind in entry.valued.items():
            found.setdefault(kind, []).append(f"{' '.join(entry.path)} {option}".strip())
    return found


def _said(kind: str) -> tuple[str, str]:
    """A kind as the scripts have it, and the words to choose from."""
    return (kind, "") if kind in ("", *_KNOWN) else ("words", kind)


def _tables(entries: Sequence[CommandEntry], anywhere: dict[str, str]) -> str:
    lines = ["_emq_ops_enter() {", '  case "$_emq_path/$1" in']
    lines += [f'    {"|".join(map(_quoted, _steps(entries)))}) _emq_path="${{_emq_path:+$_emq_path }}$1" ;;']
    lines += ["  esac", "}", "_emq_ops_valued() {", "  _emq_kind='' _emq_words=''", '  case "$1" in']
    for option, kind in anywhere.items():
        name, words = _said(kind)
        lines.append(f"    {_quoted(option)}) _emq_kind='{name}' _emq_words='{words}'; return 0 ;;")
    lines += ["  esac", '  case "${_emq_path:+$_emq_path }$1" in']
    for kind, places in _by_kind(entries).items():
        name, words = _said(kind)
        lines.append(f"    {'|'.join(map(_quoted, places))}) _emq_kind='{name}' _emq_words='{words}'; return 0 ;;")
    lines += ["  esac", "  return 1", "}", "_emq_ops_here() {", '  case "$_emq_path" in']
    for entry in entries:
        name, words = _said(entry.argument)
        told = f"_emq_words='{' '.join((*entry.verbs, words)).strip()}' _emq_kind='{name}'"
        told += f" _emq_options='{' '.join(entry.options)}'"
        lines.append(f"    {_quoted(' '.join(entry.path))}) {told} ;;")
    return "\n".join([*lines, "  esac", "}"])


def _fish_tables(entries: Sequence[CommandEntry], anywhere: dict[str, str]) -> str:
    lines = ["function __emq_ops_enter", '  switch "$__emq_path/$argv[1]"']
    lines.append(f"    case {' '.join(map(_quoted, _steps(entries)))}")
    lines.append('      set -g __emq_path (string trim "$__emq_path $argv[1]")')
    lines += ["  end", "end", "function __emq_ops_valued", "  set -g __emq_kind ''", "  set -g __emq_words"]
    lines += ['  switch "$argv[1]"']
    for option, kind in anywhere.items():
        lines += _fish_value([option], kind)
    lines += ["  end", '  switch (string trim "$__emq_path $argv[1]")']
    for kind, places in _by_kind(entries).items():
        lines += _fish_value(places, kind)
    lines += ["  end", "  return 1", "end", "function __emq_ops_here", '  switch "$__emq_path"']
    for entry in entries:
        name, words = _said(entry.argument)
        lines += [
            f"    case {_quoted(' '.join(entry.path))}",
            f"      set -g __emq_words {' '.join((*entry.verbs, words))}",
        ]
        lines += [f"      set -g __emq_options {' '.join(entry.options)}"]
        lines += [f"      set -g __emq_kind '{name}'"]
    return "\n".join([*lines, "  end", "end"])


def _fish_value(places: Sequence[str], kind: str) -> list[str]:
    name, words = _said(kind)
    told = f"      set -g __emq_kind '{name}'; set -g __emq_words {words}; return 0"
    return [f"    case {' '.join(map(_quoted, places))}", told.replace("__emq_words ;", "__emq_words;")]


def _quoted(text: str) -> str:
    return f"'{text}'"


_FIND = r"""
# Where one is, from the words before the one that is completed: candidates in _emq_verbs, _emq_options and _emq_kind.
_emq_ops_find() {
  local word valued=''
  _emq_path='' _emq_kind='' _emq_words='' _emq_options='' _emq_value=''
  for word in "$@"; do
    if [[ -n $valued ]]; then
      [[ $word == '=' ]] || valued=''
      continue
    fi
    case "$word" in
      -*=*) ;;
      -*) if _emq_ops_valued "$word"; then valued=1; fi ;;
      *) _emq_ops_enter "$word" ;;
    esac
  done
  if [[ -n $valued ]]; then
    _emq_value=1
  else
    _emq_ops_here
  fi
}

# The names of a kind, as the last look saw them. What could be more than a word is left out.
_emq_ops_names() {
  local file="${XDG_CACHE_HOME:-$HOME/.cache}/emq-ops/$1" word
  if [[ $1 == playbooks ]]; then
    for word in $(printf '%s ' @PLAYBOOKS@); do printf '%s\n' "$word"; done
  elif [[ -r $file ]]; then
    while IFS= read -r word; do
      case "$word" in *[!A-Za-z0-9_.@%+,/-]*) ;; *) printf '%s\n' "$word" ;; esac
    done < "$file"
  fi
}
"""
_BASH = r"""
_emq_ops() {
  local cur="${COMP_WORDS[COMP_CWORD]}" word
  local _emq_path _emq_kind _emq_words _emq_options _emq_value
  [[ $cur == '=' ]] && cur=''
  COMPREPLY=()
  _emq_ops_find "${COMP_WORDS[@]:1:COMP_CWORD-1}"
  if [[ -z $_emq_value && $cur == -* ]]; then
    for word in $_emq_options; do [[ $word == "$cur"* ]] && COMPREPLY+=("$word"); done
    return 0
  fi
  for word in $_emq_words; do [[ $word == "$cur"* ]] && COMPREPLY+=("$word"); done
  case "$_emq_kind" in
    queues|runs|contexts|playbooks)
      while IFS= read -r word; do
        [[ $word == "$cur"* ]] && COMPREPLY+=("$word")
      done < <(_emq_ops_names "$_emq_kind") ;;
  esac
  case "$_emq_kind" in
    files|playbooks)
      compopt -o filenames 2>/dev/null
      while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cur") ;;
  esac
  return 0
}
complete -F _emq_ops emq-ops
"""
_ZSH = r"""
_emq_ops() {
  local _emq_path _emq_kind _emq_words _emq_options _emq_value
  local -a names
  _emq_ops_find "${(@)words[2,CURRENT-1]}"
  if [[ -z $_emq_value && $words[CURRENT] == -* ]]; then
    compadd -- ${=_emq_options}
    return
  fi
  compadd -- ${=_emq_words}
  case "$_emq_kind" in
    queues|runs|contexts|playbooks) names=("${(@f)$(_emq_ops_names "$_emq_kind")}"); compadd -- ${names:#} ;;
  esac
  case "$_emq_kind" in
    files|playbooks) _files ;;
  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _emq_ops "$@"
else
  compdef _emq_ops emq-ops
fi
"""
_FISH = r"""
function __emq_ops_names
  if test "$argv[1]" = playbooks
    printf '%s\n' @PLAYBOOKS@
    return
  end
  set -l folder "$XDG_CACHE_HOME"
  test -n "$folder"; or set folder "$HOME/.cache"
  test -r "$folder/emq-ops/$argv[1]"; or return
  while read -l word
    string match -qr '^[A-Za-z0-9_.@%+,/-]+$' -- $word; and printf '%s\n' $word
  end < "$folder/emq-ops/$argv[1]"
end

function __emq_ops_complete
  set -g __emq_path ''
  set -g __emq_words
  set -g __emq_options
  set -g __emq_kind ''
  set -l valued ''
  set -l before (commandline -opc)
  for word in $before[2..-1]
    if test -n "$valued"
      set valued ''
      continue
    end
    switch "$word"
      case '-*=*'
      case '-*'
        __emq_ops_valued "$word"; and set valued 1
      case '*'
        __emq_ops_enter "$word"
    end
  end
  if test -z "$valued"
    __emq_ops_here
    if string match -q -- '-*' (commandline -ct)
      printf '%s\n' $__emq_options
      return
    end
  end
  test (count $__emq_words) -gt 0; and printf '%s\n' $__emq_words
  switch "$__emq_kind"
    case queues runs contexts playbooks
      __emq_ops_names "$__emq_kind"
  end
  switch "$__emq_kind"
    case files playbooks
      __fish_complete_path (commandline -ct)
  end
end
complete -c emq-ops -f -a '(__emq_ops_complete)'
"""
