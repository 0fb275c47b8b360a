"""Limit texts: those that parse, with their canonical text, and those that are refused."""

OK = """
token-bucket 10/s => token-bucket 10/s
token-bucket 10/s burst 20 => token-bucket 10/s burst 20
token-bucket 10/s burst 10 => token-bucket 10/s
gcra 10/s burst 20 => token-bucket 10/s burst 20
TOKEN-BUCKET 10/S BURST 20 => token-bucket 10/s burst 20
  token-bucket   10/s    burst  20   => token-bucket 10/s burst 20
token-bucket 10r/s => token-bucket 10/s
token-bucket 5k/s => token-bucket 5000/s
token-bucket 5kr/s => token-bucket 5000/s
token-bucket 5K/s BURST 1M => token-bucket 5000/s burst 1000000
token-bucket 2m/m => token-bucket 2000000/m
token-bucket 1g/s => token-bucket 1000000000/s
token-bucket 1000g/us => token-bucket 1000000000000/us
token-bucket 1000000000000/us => token-bucket 1000000000000/us
token-bucket 1000g/s burst 1 => token-bucket 1000000000000/s burst 1
token-bucket 10/s stepped => token-bucket 10/s stepped
token-bucket 10/s stepped burst 20 => token-bucket 10/s burst 20 stepped
token-bucket 10/s burst 20 stepped => token-bucket 10/s burst 20 stepped
token-bucket 10/1m1us stepped => token-bucket 10/1m1us stepped
token-bucket 10/1m1ms => token-bucket 10/1m1ms
token-bucket 10/59s999999us => token-bucket 10/59s999ms999us
token-bucket 9007199254/s => token-bucket 9007199254/s
token-bucket 1/s burst 9007199254 stepped => token-bucket 1/s burst 9007199254 stepped
token-bucket 1/366d => token-bucket 1/52w2d
token-bucket 1/52w2d => token-bucket 1/52w2d
token-bucket 10/60s => token-bucket 10/m
token-bucket 10/90m => token-bucket 10/1h30m
token-bucket 10/1h30m => token-bucket 10/1h30m
token-bucket 10/1.5h => token-bucket 10/1h30m
token-bucket 10/1.5s => token-bucket 10/1s500ms
token-bucket 10/0.5s => token-bucket 10/500ms
token-bucket 10/0.000001s => token-bucket 10/us
token-bucket 10/1000us => token-bucket 10/ms
token-bucket 10/1000ms => token-bucket 10/s
token-bucket 10/1s => token-bucket 10/s
token-bucket 10/7d => token-bucket 10/w
token-bucket 10/w => token-bucket 10/w
token-bucket 10/10d => token-bucket 10/1w3d
token-bucket 10/24h => token-bucket 10/d
token-bucket 10/1w2d3h4m5s6ms => token-bucket 10/1w2d3h4m5s6ms
token-bucket 10/1h90m => token-bucket 10/2h30m
token-bucket 10/second => token-bucket 10/s
token-bucket 10/sec burst 20 => token-bucket 10/s burst 20
token-bucket 10/Minute => token-bucket 10/m
token-bucket 10/MIN => token-bucket 10/m
token-bucket 10M/min => token-bucket 10000000/m
token-bucket 10Mr/min => token-bucket 10000000/m
token-bucket 10/hour => token-bucket 10/h
token-bucket 10/day => token-bucket 10/d
token-bucket 10/week => token-bucket 10/w
token-bucket 10/MS => token-bucket 10/ms
token-bucket 10/5Minutes => token-bucket 10/5m
token-bucket 10/1hour30min => token-bucket 10/1h30m
token-bucket 10/2weeks3days4hours5minutes6seconds => token-bucket 10/2w3d4h5m6s
sliding-window 240/hour precision 1minute => sliding-window 240/h precision 1m
warmup 5/sec over 3seconds => warmup 5/s over 3s
concurrent 20 lease 30sec => concurrent 20 lease 30s
fixed-window 60/m cost 1 => fixed-window 60/m cost 1
token-bucket 10/s COST 20 burst 20 => token-bucket 10/s burst 20 cost 20
token-bucket 10/s cost 1k burst 2k stepped => token-bucket 10/s burst 2000 stepped cost 1000
leaky-bucket 10/s cost 1 => leaky-bucket 10/s cost 1
leaky-bucket 10/s burst 3 cost 4 => leaky-bucket 10/s burst 3 cost 4
fixed-window 5/m cost 5 from-first => fixed-window 5/m from-first cost 5
sliding-window 5/h cost 2 precision 1m => sliding-window 5/h precision 1m cost 2
smooth 1/s cost 1000g => smooth 1/s cost 1000000000000
warmup 5/s cost 7 over 3s => warmup 5/s over 3s cost 7
concurrent 5 cost 5 lease 10s => concurrent 5 lease 10s cost 5
fixed-window 60/m cost 1, token-bucket 100k/m, concurrent 5 cost 1 => fixed-window 60/m cost 1, token-bucket 100000/m, concurrent 5 cost 1
leaky-bucket 10/s => leaky-bucket 10/s
leaky-bucket 10/s burst 0 => leaky-bucket 10/s
leaky-bucket 10/s burst 5 => leaky-bucket 10/s burst 5
leaky-bucket 10/s burst 10 => leaky-bucket 10/s burst 10
leaky-bucket 10/s burst 5 nodelay => leaky-bucket 10/s burst 5 nodelay
leaky-bucket 10/s nodelay burst 5 => leaky-bucket 10/s burst 5 nodelay
leaky-bucket 10/s nodelay => leaky-bucket 10/s nodelay
leaky-bucket 10/s burst 5 delay 3 => leaky-bucket 10/s burst 5 delay 3
leaky-bucket 10/s delay 3 burst 5 => leaky-bucket 10/s burst 5 delay 3
leaky-bucket 10/s burst 5 delay 5 => leaky-bucket 10/s burst 5 delay 5
leaky-bucket 10/s burst 5 delay 0 => leaky-bucket 10/s burst 5
leaky-bucket 1/s burst 9007199253 => leaky-bucket 1/s burst 9007199253
fixed-window 100/m => fixed-window 100/m
fixed-window 100/m from-first => fixed-window 100/m from-first
fixed-window 1000g/m => fixed-window 1000000000000/m
fixed-window 1/us => fixed-window 1/us
sliding-log 5/m => sliding-log 5/m
sliding-log 100k/m => sliding-log 100000/m
sliding-window 240/h => sliding-window 240/h
sliding-window 240/h precision 1m => sliding-window 240/h precision 1m
sliding-window 240/h precision 6m => sliding-window 240/h
sliding-window 240/h precision 360s => sliding-window 240/h
sliding-window 240/h precision 60m => sliding-window 240/h precision 1h
sliding-window 240/h precision 360ms => sliding-window 240/h precision 360ms
sliding-window 240/7us => sliding-window 240/7us
sliding-window 240/7us precision 1us => sliding-window 240/7us
sliding-window 240/10ms precision 1us => sliding-window 240/10ms precision 1us
sliding-window 1000g/h => sliding-window 1000000000000/h
sliding-counter 1000/h => sliding-counter 1000/h
sliding-counter 1g/366d => sliding-counter 1000000000/52w2d
smooth 5/s => smooth 5/s
smooth 5/s burst-for 1s => smooth 5/s
smooth 5/s burst-for 2s => smooth 5/s burst-for 2s
smooth 5/s burst-for 1.5s => smooth 5/s burst-for 1s500ms
smooth 5/s burst-for 366d => smooth 5/s burst-for 52w2d
warmup 5/s over 3s => warmup 5/s over 3s
warmup 5/s over 3s cold 3 => warmup 5/s over 3s
warmup 5/s over 3s cold 3.0 => warmup 5/s over 3s
warmup 5/s cold 2.50 over 90s => warmup 5/s over 1m30s cold 2.5
warmup 5/s over 3s cold 1.000001 => warmup 5/s over 3s cold 1.000001
warmup 5/s over 3s cold 1000 => warmup 5/s over 3s cold 1000
warmup 5/s over 3s cold 10 => warmup 5/s over 3s cold 10
concurrent 20 => concurrent 20
concurrent 20 lease 30s => concurrent 20 lease 30s
concurrent 20 lease 1m => concurrent 20
concurrent 20 lease 60s => concurrent 20
concurrent 100k lease 2h => concurrent 100000 lease 2h
sliding-log 1/s, sliding-log 5/m => sliding-log 1/s, sliding-log 5/m
sliding-log 1/s,sliding-log 5/m => sliding-log 1/s, sliding-log 5/m
sliding-log 1/s  ,   sliding-log 5/m => sliding-log 1/s, sliding-log 5/m
fixed-window 1/s, fixed-window 1/s from-first => fixed-window 1/s, fixed-window 1/s from-first
token-bucket 1/s, token-bucket 1/s stepped => token-bucket 1/s, token-bucket 1/s stepped
token-bucket 1/s, leaky-bucket 1/s => token-bucket 1/s, leaky-bucket 1/s
sliding-window 9/h, sliding-window 8/h precision 1m => sliding-window 9/h, sliding-window 8/h precision 1m
concurrent 5, fixed-window 5/s => concurrent 5, fixed-window 5/s
fixed-window 5/month => fixed-window 5/month
fixed-window 5/MONTH => fixed-window 5/month
fixed-window 5/month from 1 => fixed-window 5/month
fixed-window 5/month from 01 => fixed-window 5/month
fixed-window 5/month from 31 => fixed-window 5/month from 31
fixed-window 5m/month FROM 15 ZONE +08:00 => fixed-window 5000000/month from 15 zone +08:00
fixed-window 5m/month zone +08 from 15 => fixed-window 5000000/month from 15 zone +08:00
fixed-window 5/month zone +00:00 => fixed-window 5/month
fixed-window 5/month zone -00:00 => fixed-window 5/month
fixed-window 5/month zone -00 => fixed-window 5/month
fixed-window 5/month zone -00:30 => fixed-window 5/month zone -00:30
fixed-window 5/month zone -12:00 => fixed-window 5/month zone -12:00
fixed-window 5/month zone +14:00 => fixed-window 5/month zone +14:00
fixed-window 5/month zone +13:59 => fixed-window 5/month zone +13:59
fixed-window 5/year => fixed-window 5/year
fixed-window 5/year from 01-01 => fixed-window 5/year
fixed-window 5/Year from 02-29 => fixed-window 5/year from 02-29
fixed-window 5/year from 12-31 zone +05:45 => fixed-window 5/year from 12-31 zone +05:45
fixed-window 5/w from mon => fixed-window 5/w from mon
fixed-window 5/week from SUN => fixed-window 5/w from sun
fixed-window 5/7d from thu => fixed-window 5/w from thu
fixed-window 5/168h from wed zone -03 => fixed-window 5/w from wed zone -03:00
fixed-window 5/w zone +01:00 => fixed-window 5/w zone +01:00
fixed-window 5/d zone +08:00 => fixed-window 5/d zone +08:00
fixed-window 5/d zone +00:00 => fixed-window 5/d
fixed-window 5/us zone -12:00 => fixed-window 5/us zone -12:00
fixed-window 5/366d zone +14 => fixed-window 5/52w2d zone +14:00
fixed-window 5/31d, fixed-window 5/month => fixed-window 5/4w3d, fixed-window 5/month
fixed-window 5/month, fixed-window 5/month from 2 => fixed-window 5/month, fixed-window 5/month from 2
fixed-window 5/month, fixed-window 5/month zone +01:00 => fixed-window 5/month, fixed-window 5/month zone +01:00
fixed-window 5/w, fixed-window 5/w from thu => fixed-window 5/w, fixed-window 5/w from thu
fixed-window 5/d, fixed-window 5/d from-first, fixed-window 5/d zone +01 => fixed-window 5/d, fixed-window 5/d from-first, fixed-window 5/d zone +01:00
"""

BAD = """
token-bucket 10/M
token-bucket 10/5M
token-bucket 10/1h30M
token-bucket 10/1H30M
token-bucket 10/1M30s
sliding-window 240/h precision 1M
concurrent 20 lease 5M
token-bucket 10/month
token-bucket 10/mins
token-bucket 10/secs
token-bucket 10/1min2minutes
,
token-bucket
token-bucket 10
token-bucket 10/
token-bucket /s
token-bucket /
token-bucket 10/s,
,token-bucket 10/s
token-bucket 10/s,,fixed-window 1/s
token-bucket 10/s; fixed-window 1/s
token-bucket 10/s fixed-window 1/s
token_bucket 10/s
tokenbucket 10/s
bucket 10/s
10/s
token-bucket 10 /s
token-bucket 10/ s
token-bucket 10 / s
token-bucket 10 s
token-bucket 10/s/s
token-bucket 0/s
token-bucket -1/s
token-bucket 1.5/s
token-bucket ten/s
token-bucket 10t/s
token-bucket 10rk/s
token-bucket 10rr/s
token-bucket 1e3/s
token-bucket 0x10/s
token-bucket 1001g/us
token-bucket 1000000000001/us
token-bucket 18446744073709551617/s
token-bucket 99999999999999999999999999999999/s
token-bucket 10/0s
token-bucket 10/0
token-bucket 10/10
token-bucket 10/0.5us
token-bucket 10/1.5us
token-bucket 10/1.0000005s
token-bucket 10/-1s
token-bucket 10/1y
token-bucket 10/30m1h
token-bucket 10/1s1s
token-bucket 10/ss
token-bucket 10/1h 30m
token-bucket 10/367d
token-bucket 10/52w3d
token-bucket 10/52w2d1us
token-bucket 10/999999999999999999999999d
token-bucket 10/1m1us
token-bucket 10/60.0001s
token-bucket 10g/s
token-bucket 9007199255/s
token-bucket 1/s burst 9007199255
token-bucket 1/s burst 9007199255 stepped
token-bucket 1/s burst 1000g
token-bucket 1000g/366d
token-bucket 10/s burst
token-bucket 10/s burst 0
token-bucket 10/s burst -1
token-bucket 10/s burst 1.5
token-bucket 10/s burst=20
token-bucket 10/s burst 20 burst 20
token-bucket 10/s burst 20 30
token-bucket 10/s stepped stepped
token-bucket 10/s 20
token-bucket 10/s nodelay
token-bucket 10/s delay 3
token-bucket 10/s from-first
token-bucket burst 20 10/s
leaky-bucket 10/s burst 5 nodelay delay 3
leaky-bucket 10/s burst 5 delay 3 nodelay
leaky-bucket 10/s burst 5 delay 6
leaky-bucket 10/s delay 1
leaky-bucket 10/s burst 5 nodelay nodelay
leaky-bucket 1/s burst 9007199254
leaky-bucket 10/1m1us
leaky-bucket 10/s stepped
fixed-window 100/m burst 5
fixed-window 100/m stepped
fixed-window 100/m from-first from-first
fixed-window 100/m from first
fixed-window 1001g/m
sliding-log 100001/m
sliding-log 101k/m
sliding-log 5/m burst 5
sliding-log 5/m precision 1s
sliding-window 240/h precision
sliding-window 240/h precision 0s
sliding-window 240/h precision 61m
sliding-window 240/h precision 359ms
sliding-window 240/h precision 359999us
sliding-window 240/h precision 60
sliding-window 240/h precision 1m precision 1m
sliding-counter 1001m/h
sliding-counter 1000000001/h
sliding-counter 1000/h precision 1m
smooth 5/s burst 5
smooth 5/s burst-for
smooth 5/s burst-for 2
smooth 5/s burst-for 367d
smooth 5/s over 3s
warmup 5/s
warmup 5/s cold 3
warmup 5/s over
warmup 5/s over 0s
warmup 5/s over 367d
warmup 5/s over 3s cold
warmup 5/s over 3s cold 1
warmup 5/s over 3s cold 1.0
warmup 5/s over 3s cold 0.5
warmup 5/s over 3s cold -3
warmup 5/s over 3s cold 1000.000001
warmup 5/s over 3s cold 1001
warmup 5/s over 3s cold 1.0000001
warmup 5/s over 3s cold 3s
warmup 5/s over 3s over 3s
concurrent
concurrent 0
concurrent 20/s
concurrent 100001
concurrent 20 lease
concurrent 20 lease 0s
concurrent 20 lease 30
concurrent 20 lease 367d
concurrent 20 burst 5
fixed-window 1/s, fixed-window 2/s
fixed-window 1/60s, fixed-window 2/m
token-bucket 1/s, gcra 2/s
token-bucket 1/s stepped, token-bucket 2/s stepped burst 4
leaky-bucket 1/s, leaky-bucket 1/s nodelay
smooth 1/s, smooth 2/s burst-for 3s
warmup 1/s over 1s, warmup 1/s over 2s
sliding-window 1/h, sliding-window 2/h precision 6m
concurrent 1, concurrent 2 lease 5s
fixed-window 5/months
fixed-window 5/1month
fixed-window 5/2months
fixed-window 5/years
fixed-window 5/1year
fixed-window 5/y
fixed-window 5/mon
fixed-window 5/M
fixed-window 5/month from
fixed-window 5/month from 0
fixed-window 5/month from 00
fixed-window 5/month from 32
fixed-window 5/month from 015
fixed-window 5/month from 1st
fixed-window 5/month from -1
fixed-window 5/month from mon
fixed-window 5/month from 01-15
fixed-window 5/month from 1 from 1
fixed-window 5/month from-first
fixed-window 5/year from-first
fixed-window 5/year from 31
fixed-window 5/year from 1-1
fixed-window 5/year from 00-01
fixed-window 5/year from 13-01
fixed-window 5/year from 01-00
fixed-window 5/year from 01-32
fixed-window 5/year from 02-30
fixed-window 5/year from 04-31
fixed-window 5/year from 2026-01-01
fixed-window 5/year from jan
fixed-window 5/w from monday
fixed-window 5/w from 1
fixed-window 5/w from
fixed-window 5/w from-first from mon
fixed-window 5/w from mon from-first
fixed-window 5/2w from mon
fixed-window 5/d from mon
fixed-window 5/d from 1
fixed-window 5/m zone
fixed-window 5/m zone 8
fixed-window 5/m zone +8
fixed-window 5/m zone 08:00
fixed-window 5/m zone +0800
fixed-window 5/m zone +08:0
fixed-window 5/m zone +08:60
fixed-window 5/m zone +08:
fixed-window 5/m zone +14:01
fixed-window 5/m zone +15:00
fixed-window 5/m zone -12:01
fixed-window 5/m zone -13:00
fixed-window 5/m zone Z
fixed-window 5/m zone UTC
fixed-window 5/m zone Europe/Berlin
fixed-window 5/m zone +01:00 zone +01:00
fixed-window 5/m from-first zone +01:00
fixed-window 5/m zone +01:00 from-first
fixed-window 5/m from-first zone +00:00
token-bucket 5/year
token-bucket 5/m zone +01:00
sliding-log 5/month
sliding-window 5/h precision month
sliding-counter 5/month from 2
leaky-bucket 5/month
smooth 5/month
concurrent 5 lease month
concurrent 5 zone +01:00
fixed-window 1/month, fixed-window 2/month from 1
fixed-window 1/month, fixed-window 2/month zone +00:00
fixed-window 1/w from mon, fixed-window 2/7d from mon
fixed-window 60/m cost
fixed-window 60/m cost 0
fixed-window 60/m cost -1
fixed-window 60/m cost 1.5
fixed-window 60/m cost 1s
fixed-window 60/m cost 61
fixed-window 60/m cost 1 cost 1
token-bucket 10/s cost 11
token-bucket 10/s burst 5 cost 6
leaky-bucket 10/s cost 2
concurrent 5 cost 6
smooth 1/s cost 1001g
fixed-window 1/s cost 1, fixed-window 2/s
"""


def many(count):
    return ", ".join(f"fixed-window {i}/{i}s" for i in range(2, 2 + count))


def lines():
    out = []
    for line in OK.strip("\n").split("\n") + [f"{many(16)} => {many(16)}"]:
        out.append(("ok", *line.split(" => ")))
    for line in BAD.strip("\n").split("\n") + [many(17)]:
        out.append(("bad", line, None))
    return out
