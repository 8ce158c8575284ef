# Completion of rc for bash. Load it with: source <(rc completion bash)
_rc() {
  local line=${COMP_LINE:0:COMP_POINT} cur="" reply
  local -a words=()
  read -ra words <<<"$line"
  # A space at the end begins a word. bash's own words are of no use here: it
  # takes host:name apart at the colon.
  [[ $line == *[[:space:]] ]] && words+=("")
  ((${#words[@]} > 0)) && cur=${words[${#words[@]} - 1]}
  COMPREPLY=()
  while IFS=$'\t' read -r reply _; do
    [[ -n $reply ]] || continue
    # bash replaces only what follows the last colon or equals sign.
    if [[ $cur == *[:=]* ]]; then
      reply=${reply#"${cur%"${cur##*[:=]}"}"}
    fi
    COMPREPLY+=("$reply")
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _rc rc
