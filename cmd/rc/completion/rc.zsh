#compdef rc
# Completion of rc for zsh. Load it with: source <(rc completion zsh)
_rc() {
  local line
  local -a items
  for line in "${(@f)$(rc __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -n $line ]] || continue
    # A colon separates an item from its description.
    items+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( ${#items} )); then
    _describe -V rc items
  else
    _files
  fi
}
# From a folder of fpath this file is the function itself.
if [[ $funcstack[1] == _rc ]]; then
  _rc "$@"
elif (( $+functions[compdef] )); then
  compdef _rc rc
fi
