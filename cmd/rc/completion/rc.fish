# Completion of rc for fish. Load it with: rc completion fish | source
function __rc_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    rc __complete $before[2..-1] "$current" 2>/dev/null
end
# After -- come the job's own words, which are files as like as not.
complete -c rc -n 'not contains -- -- (commandline -opc)' -f -a '(__rc_complete)'
