# Completion of coetcd for bash. Names of locks are asked for at etcd.
#
# A name there is anybody's text: it is compared and offered as it is, and never expanded. Only names
# of letters, digits and ._/- are offered, which mean the same to a shell with quotes and without.

# Adds those of the words that begin with what was typed.
_coetcd_offer() {
    local typed=$1 word
    shift
    for word; do
        [[ $word == "$typed"* ]] && COMPREPLY+=("$word")
    done
}

_coetcd_names() {
    local typed=$1 name
    local LC_ALL=C # else a-z has more letters than these
    [[ $typed =~ ^[A-Za-z0-9._/]?[A-Za-z0-9._/-]*$ ]] || return
    # A quote inside of a text has a backslash in front of it.
    while IFS= read -r name; do
        [[ $name =~ ^[A-Za-z0-9._/][A-Za-z0-9._/-]*$ && $name == "$typed"* ]] &&
            COMPREPLY+=("$name")
    done < <(coetcd top --json --command-timeout 1s -- "$typed" 2>/dev/null </dev/null |
        sed -n 's|.*"name":"\([A-Za-z0-9._/-]*\)".*|\1|p')
}

_coetcd() {
    local current=$2 before=$3 i sub=
    local -a flags=(--endpoints --user --password-file --plain-text-password --cacert --cert --key
        --insecure-skip-tls-verify --dial-timeout --command-timeout --help)
    local -a subs=(lock elect sem top who ask unlock status)
    local -a holding=(--ttl --label --grace --keep-password --verbose)
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
            declare -F _command_offset >/dev/null && _command_offset "$((i + 1))" 2>/dev/null
            return
            ;;
        lock | elect | sem | top | who | ask | unlock | status)
            [[ $sub ]] || sub=${COMP_WORDS[i]}
            ;;
        esac
    done
    case $before in
    --password-file | --cacert | --cert | --key)
        compopt -o default 2>/dev/null # files
        return
        ;;
    --sort)
        _coetcd_offer "$current" name waiters token
        return
        ;;
    esac
    if [[ $current != -* && $before == "$sub" && $sub && $sub != status ]]; then
        _coetcd_names "$current"
        return
    fi
    case $sub in
    '') flags+=("${subs[@]}") ;;
    lock) flags+=("${holding[@]}" --try --timeout --shared --max-hold) ;;
    elect) flags+=("${holding[@]}" --listen --json) ;;
    sem) flags+=("${holding[@]}" --try --timeout --limit --permits --set-limit) ;;
    top) flags+=(--once --json --sort) ;;
    who | status) flags+=(--json) ;;
    ask) flags+=(--ttl) ;;
    unlock) flags+=(--token --yes) ;;
    esac
    _coetcd_offer "$current" "${flags[@]}"
}
complete -F _coetcd coetcd
