R"script(#compdef longhand
# Completion of longhand in zsh, written by: longhand completion zsh
_longhand() {
  local line word tab=$'\t'
  local -a candidates unfinished
  for line in "${(@f)$("$words[1]" completion -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2> /dev/null)}"; do
    word=${line%%$tab*}
    case $word in
      '') ;;
      :files) _files ;;
      :directories) _files -/ ;;
      *[=.]) unfinished+=("$word") ;;
      *) candidates+=("${word//:/\\:}${${line#*$tab}:+:${line#*$tab}}") ;;
    esac
  done
  (( ${#candidates} )) && _describe longhand candidates
  (( ${#unfinished} )) && compadd -S '' -- $unfinished
  return 0
}
if [[ $funcstack[1] == _longhand ]]; then _longhand "$@"; else compdef _longhand longhand; fi
)script"
