# Completion of `weir` for bash. Install as /usr/share/bash-completion/completions/weir, or source it.

_weir_options() {
    case $1 in
    take | peek) echo "--cost --wait --detail --json --store --help" ;;
    wait) echo "--cost --max --json --store --help" ;;
    acquire) echo "--cost --json --store --help" ;;
    settle | reset | renew | release) echo "--json --store --help" ;;
    explain | demo) echo "--json --help" ;;
    replay) echo "--wait --decisions --json --store --help" ;;
    bench) echo "--keys --threads --seconds --limit --batch --store --json --help" ;;
    zone) echo "--check --json --help" ;;
    check) echo "--request --json --store --help" ;;
    serve)
        echo "--listen --listen-tls --tls-cert --tls-key --store --policies --envoy \
            --envoy-charge-denied --envoy-headers --headers --host --token-file \
            --admin-token-file --public-without-token --threads --max-connections \
            --max-per-client --max-head --max-body --max-delay --idle-timeout --request-timeout \
            --drain-timeout --access-log --access-log-sample --access-log-denials --no-watch \
            --demo-load --test-clock --help"
        ;;
    top) echo "--token --once --json --help" ;;
    esac
}

_weir() {
    local commands="take peek wait settle reset acquire renew release explain replay demo bench zone serve top check"
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$commands help --help --version" -- "$current")
        return
    fi
    local command=${COMP_WORDS[1]}
    case $previous in
    help)
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
        return
        ;;
    --store)
        compopt -o nospace
        local homes="file: shm: memory:"
        [[ $command == serve ]] && homes+=" redis:// redis+cluster:// redis+sentinel:// rediss://"
        mapfile -t COMPREPLY < <(compgen -W "$homes" -- "$current")
        return
        ;;
    --policies | --envoy | --token-file | --admin-token-file | --tls-cert | --tls-key | --access-log)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --headers)
        mapfile -t COMPREPLY < <(compgen -W "ietf ietf-06 x-ratelimit off" -- "$current")
        return
        ;;
    --listen | --listen-tls | --host | --max-* | --*-timeout | --access-log-sample)
        return
        ;;
    --wait | --max)
        mapfile -t COMPREPLY < <(compgen -W "any 0 100ms 1s 10s 1m" -- "$current")
        return
        ;;
    --cost | --keys | --threads | --seconds | --batch | --limit | --request | --token)
        return
        ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_weir_options "$command")" -- "$current")
    elif [[ $command == zone || $command == replay || $command == check ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

complete -F _weir weir
