# Completion of `weir` for bash. Install as /usr/share/bash-completion/completions/weir, or source it.

_weir_options() {
    local server="--server --token"
    case $1 in
    take | peek) echo "--cost --least --wait --detail --json --store $server --help" ;;
    wait) echo "--cost --max --json --store $server --help" ;;
    acquire) echo "--cost --least --wait --json --store $server --help" ;;
    run) echo "--wait --cost --quiet --on-lost --denied-code --failed-code --store $server --help" ;;
    pipe) echo "--lines --key --quiet --store $server --help" ;;
    refund) echo "--policy --key --request --limit --id --json --store $server --help" ;;
    settle) echo "--policy --key --request --cost --least --json --store $server --help" ;;
    reset | show | renew | release) echo "--json --store $server --help" ;;
    explain) echo "--json --key --policy --request --store $server --help" ;;
    demo) echo "--json --help" ;;
    replay)
        echo "--limit --policies --spare --store --wait --share --share-by --format --key --where --cost --template --field --timezone \
            --disorder --no-spread --follow --memory --report --decisions --json --help"
        ;;
    suggest)
        echo "--deny-keys --deny-requests --protect --spare --format --key --where --cost --template --field --timezone \
            --disorder --no-spread --memory --report --json --help"
        ;;
    bench) echo "--keys --threads --seconds --limit --batch --store --json --help" ;;
    zone) echo "--check --json --dump --load --help" ;;
    lua) echo "--args --cost --least --wait --function --list --sha --json --help" ;;
    check) echo "--request --policy --strict --json --store --help" ;;
    serve)
        echo "--listen --listen-tls --tls-cert --tls-key --tls-client-ca --store --policies --envoy \
            --envoy-merge-domains --envoy-charge-denied --envoy-headers --envoy-near-limit \
            --headers --host --token-file --admin-token-file --public-without-token --threads \
            --max-connections --max-per-client --max-head --max-body --max-memory --max-delay --idle-timeout \
            --request-timeout --drain-timeout --max-connection-age --max-connection-age-grace \
            --health-store --shutdown-delay --access-log --access-log-sample --access-log-denials \
            --access-log-request --no-watch \
            --demo-load --test-clock --help"
        ;;
    top) echo "--token --once --json --help" ;;
    esac
}

_weir() {
    local commands="take peek wait settle refund reset show acquire renew release run pipe explain replay suggest demo bench zone lua serve top check"
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
        local homes="file: shm: memory: redis:// rediss:// redis+cluster:// rediss+cluster:// \
            redis+sentinel:// rediss+sentinel:// redis+unix://"
        mapfile -t COMPREPLY < <(compgen -W "$homes" -- "$current")
        return
        ;;
    --load | --policies | --envoy | --token-file | --admin-token-file | --tls-cert | --tls-key | --tls-client-ca | --access-log | --report)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --server)
        compopt -o nospace
        mapfile -t COMPREPLY < <(compgen -W "http:// https:// unix:" -- "$current")
        return
        ;;
    --headers)
        mapfile -t COMPREPLY < <(compgen -W "ietf ietf-06 x-ratelimit openai retry-after off" -- "$current")
        return
        ;;
    --listen | --listen-tls | --host | --max-* | --*-timeout | --shutdown-delay | --access-log-sample | --envoy-near-limit)
        return
        ;;
    --deny-keys | --deny-requests)
        mapfile -t COMPREPLY < <(compgen -W "1% 0.1%" -- "$current")
        return
        ;;
    --on-lost)
        mapfile -t COMPREPLY < <(compgen -W "stop go-on" -- "$current")
        return
        ;;
    --wait | --max)
        mapfile -t COMPREPLY < <(compgen -W "any 0 100ms 1s 10s 1m" -- "$current")
        return
        ;;
    --denied-code | --failed-code | --cost | --least | --keys | --key | --policy | --threads | --seconds | --batch | --limit | --protect | --spare | --args | --request | --token)
        return
        ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_weir_options "$command")" -- "$current")
    elif [[ $command == zone || $command == pipe || $command == replay || $command == suggest || $command == check ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

complete -F _weir weir
