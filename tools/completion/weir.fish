# Completion of `weir` for fish. Install in ~/.config/fish/completions or vendor_completions.d.

set -l commands take peek wait settle reset acquire renew release explain replay demo bench zone top check
set -l none "not __fish_seen_subcommand_from $commands help"

complete -c weir -f
complete -c weir -n $none -l version -d "Print the version"
complete -c weir -l help -d "Show help"

complete -c weir -n $none -a take -d "Decide a request and charge it if allowed"
complete -c weir -n $none -a peek -d "What take would answer, charging nothing"
complete -c weir -n $none -a wait -d "Take, sleeping until it is allowed"
complete -c weir -n $none -a settle -d "Correct a charge when the real cost is known"
complete -c weir -n $none -a reset -d "Forget a key, all its limits"
complete -c weir -n $none -a acquire -d "Hold slots of a concurrent limit"
complete -c weir -n $none -a renew -d "Start the time of a lease anew"
complete -c weir -n $none -a release -d "Give the slots of a lease back"
complete -c weir -n $none -a explain -d "What a limit does and promises, with a plot"
complete -c weir -n $none -a replay -d "What a limit would have decided on a log"
complete -c weir -n $none -a demo -d "Twice the limit around the edge of a window"
complete -c weir -n $none -a bench -d "How fast the library decides here"
complete -c weir -n $none -a zone -d "What a zone holds, and whether it is sound"
complete -c weir -n $none -a top -d "Watch a server"
complete -c weir -n $none -a check -d "Whether a policy file can be read, and what it says"
complete -c weir -n $none -a help -d "Show the help of a command"
complete -c weir -n "__fish_seen_subcommand_from help" -a "$commands"

complete -c weir -n "__fish_seen_subcommand_from $commands" -l json -d "Print JSON"
complete -c weir -n "__fish_seen_subcommand_from take peek wait settle reset acquire renew release replay bench check" \
    -l store -x -a "file: shm: memory:" -d "Where the state is kept"
complete -c weir -n "__fish_seen_subcommand_from take peek wait acquire" -l cost -x -d "What it costs"
complete -c weir -n "__fish_seen_subcommand_from take peek replay" -l wait -x -a "any 0 1s" \
    -d "Longest delay accepted"
complete -c weir -n "__fish_seen_subcommand_from take peek" -l detail -d "Show the answer of each limit"
complete -c weir -n "__fish_seen_subcommand_from wait" -l max -x -a "any 0 1s" -d "Sleep at most so long"
complete -c weir -n "__fish_seen_subcommand_from replay" -l decisions -d "A line a request"
complete -c weir -n "__fish_seen_subcommand_from replay zone check" -F
complete -c weir -n "__fish_seen_subcommand_from check" -l request -x -d "Attributes of a request"
complete -c weir -n "__fish_seen_subcommand_from zone" -l check -d "Only check"
complete -c weir -n "__fish_seen_subcommand_from bench" -l keys -x -d "Different keys"
complete -c weir -n "__fish_seen_subcommand_from bench" -l threads -x -d "Threads"
complete -c weir -n "__fish_seen_subcommand_from bench" -l seconds -x -d "For all rows together"
complete -c weir -n "__fish_seen_subcommand_from bench" -l limit -x -d "Limits to measure"
complete -c weir -n "__fish_seen_subcommand_from bench" -l batch -x -d "Requests a batch"
complete -c weir -n "__fish_seen_subcommand_from top" -l token -x -d "The admin token of the server"
complete -c weir -n "__fish_seen_subcommand_from top" -l once -d "Print one view"
