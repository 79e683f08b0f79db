# Completion of coetcd for bash. Names of locks are asked for at etcd.
_coetcd() {
    local current=$2 before=$3 i sub=
    local connection='--endpoints --user --password-file --plain-text-password --cacert --cert --key
        --insecure-skip-tls-verify --dial-timeout --command-timeout --help'
    local holding='--ttl --label --grace --verbose'
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
            _command_offset "$((i + 1))" 2>/dev/null
            return
            ;;
        lock | elect | sem | top | who | unlock | status)
            [[ $sub ]] || sub=${COMP_WORDS[i]}
            ;;
        esac
    done
    case $before in
    --password-file | --cacert | --cert | --key)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --sort)
        mapfile -t COMPREPLY < <(compgen -W 'name waiters token' -- "$current")
        return
        ;;
    esac
    local words=$connection
    case $sub in
    '') words+=' lock elect sem top who unlock status' ;;
    lock) words+=" $holding --try --timeout --shared --max-hold" ;;
    elect) words+=" $holding --listen --json" ;;
    sem) words+=" $holding --try --timeout --limit --permits" ;;
    top) words+=' --once --json --sort' ;;
    who | status) words+=' --json' ;;
    unlock) words+=' --token --yes' ;;
    esac
    if [[ $current != -* && $before == "$sub" && $sub ]]; then
        words=$(coetcd top "$current" --once --command-timeout 1s 2>/dev/null </dev/null |
            sed '1d; s/ .*//')
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _coetcd coetcd
