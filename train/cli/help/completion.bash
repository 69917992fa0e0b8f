R"script(# Completion of longhand in bash, written by: longhand completion bash
_longhand() {
  local line=${COMP_LINE:0:COMP_POINT} tab=$'\t' word kept candidate
  local -a words
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  word=${words[-1]}
  # Readline completes what follows the last = or : of a word where these separate words.
  kept=
  [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && kept=${word%"${word##*=}"}
  COMPREPLY=()
  while IFS= read -r candidate; do
    candidate=${candidate%%"$tab"*}
    case $candidate in
      :files) compopt -o filenames 2> /dev/null
        while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -f -- "$word") ;;
      :directories) compopt -o filenames 2> /dev/null
        while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -d -- "$word") ;;
      *) [[ $candidate == *[=.] ]] && compopt -o nospace 2> /dev/null
        COMPREPLY+=("${candidate#"$kept"}") ;;
    esac
  done < <("${words[0]}" completion -- "${words[@]:1}" 2> /dev/null)
}
complete -F _longhand longhand
)script"
