# Completion of coetcd for bash. Names of locks are asked for at etcd.
#
# A name there is anybody's text: it is compared and offered as it is, and never expanded. Only names
# of letters, digits and ._/- are offered, which mean the same to a shell with quotes and without.
# No command of these may fail: that would end a shell with `set -e`.

# Adds those of the words that begin with what was typed.
_coetcd_offer() {
    local typed=$1 word
    shift
    for word; do
        if [[ $word == "$typed"* ]]; then
            COMPREPLY+=("$word")
        fi
    done
}

# It asks for no longer than a second, and takes no more than 500 names, however many there are.
_coetcd_names() {
    local typed=$1 name
    local -a limit=()
    if type -P timeout >/dev/null; then
        limit=(timeout 1)
    fi
    local LC_ALL=C # else a-z has more letters than these
    [[ $typed =~ ^[A-Za-z0-9._/]?[A-Za-z0-9._/-]*$ ]] || return 0
    # A quote inside of a text has a backslash in front of it.
    while IFS= read -r name; do
        if [[ $name =~ ^[A-Za-z0-9._/][A-Za-z0-9._/-]{0,511}$ && $name == "$typed"* ]]; then
            COMPREPLY+=("$name")
        fi
    done < <("${limit[@]}" coetcd top --json --command-timeout 1s -- "$typed" 2>/dev/null </dev/null |
        sed -n 's|.*"name":"\([A-Za-z0-9._/-]*\)".*|\1|p' 2>/dev/null | head -n 500)
}

_coetcd() {
    local current=$2 i word rest=$COMP_LINE sub= flag= operands=0 plain=
    local -a words=()
    local -a flags=(--endpoints --user --password-file --plain-text-password --cacert --cert --key
        --insecure-skip-tls-verify --dial-timeout --command-timeout --help)
    local -a subs=(lock elect sem top who ask unlock status)
    local -a holding=(--ttl --grace --keep-password --verbose)
    local valued=' --endpoints --user --password-file --cacert --cert --key --dial-timeout '
    valued+='--command-timeout --ttl --label --grace --timeout --max-hold --limit --permits '
    valued+='--set-limit --sort --token '
    COMPREPLY=()
    # Bash cuts words at : and =, too, unless they are in quotes. Here they are as they were typed.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $rest == [[:space:]]* ]]; then
            words+=("$word")
        else
            words[${#words[@]} - 1]+=$word
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$word"}
    done
    local last=$((${#words[@]} - 1))
    for ((i = 1; i < last; i++)); do
        word=${words[i]}
        flag=
        if [[ $plain || $word != -* ]]; then
            operands=$((operands + (${#sub} > 0)))
            sub=${sub:-$word}
        elif [[ $word == -- && $sub == @(lock|elect|sem) ]]; then
            for ((i = 1; i <= COMP_CWORD; i++)); do
                [[ ${COMP_WORDS[i]} == -- ]] && break
            done
            if declare -F _command_offset >/dev/null; then
                _command_offset "$((i + 1))" 2>/dev/null
            fi
            return 0
        elif [[ $word == -- ]]; then
            plain=yes
        elif [[ $valued == *" $word "* ]]; then # its value is the next word
            flag=$word
            ((i++))
        fi
    done
    if [[ ! $plain && ${words[last]} == --*=* ]]; then
        flag=${words[last]%%=*}
    elif ((i == last)); then
        flag=
    fi
    if [[ $flag ]]; then
        case $flag in
        --password-file | --cacert | --cert | --key) compopt -o default 2>/dev/null || true ;; # files
        --sort) _coetcd_offer "${current#=}" name waiters token ;;
        esac
        return 0
    fi
    if [[ $sub && $sub != status && ($plain || $current != -*) ]] && ((operands == 0)); then
        if [[ ${words[last]} == "$current" ]]; then
            _coetcd_names "$current"
        fi
        return 0
    fi
    if [[ $plain ]]; then
        return 0
    fi
    case $sub in
    '') flags+=("${subs[@]}") ;;
    lock) flags+=("${holding[@]}" --label --try --timeout --shared --max-hold) ;;
    elect) flags+=("${holding[@]}" --listen --json) ;;
    sem) flags+=("${holding[@]}" --label --try --timeout --limit --permits --set-limit) ;;
    top) flags+=(--once --json --sort) ;;
    who | status) flags+=(--json) ;;
    ask) flags+=(--ttl) ;;
    unlock) flags+=(--token --yes) ;;
    esac
    _coetcd_offer "$current" "${flags[@]}"
}
complete -F _coetcd coetcd
