# fish completions of burnctl; save as ~/.config/fish/completions/burnctl.fish
function __burnctl_words
    set -l before (commandline -opc)
    set -l typed (commandline -ct | string replace -r '^[\'"]' '' | string unescape)
    burnctl completions words -- $before[2..-1] "$typed" 2>/dev/null
end
function __burnctl_has_none
    test (count (__burnctl_words)) -eq 0
end
complete -c burnctl -f -a '(__burnctl_words)'
complete -c burnctl -n __burnctl_has_none -F
