/* See slot.h. */
#include "remote/slot.h"

#include "remote/remote.h"

#include <stdio.h>
#include <string.h>

int weir__slot_limit(int32_t peers, weir_limit **ret, weir_error *err)
{
    char text[64];
    snprintf(text, sizeof text, "concurrent %d lease 10s", (int)peers);
    return weir_limit_parse(text, ret, err);
}

bool weir__slot_tried(struct weir__slot_try *it, const struct weir__job *job)
{
    assert(job->verb == WEIR__VERB_ACQUIRE);
    bool decided = job->code == 0, got = decided && job->ret->allowed && job->ret->lease;
    bool said = !decided && job->error[0];
    it->trouble = got       ? WEIR__TROUBLE_NONE
                  : decided ? WEIR__TROUBLE_PEERS
                  : said    ? WEIR__TROUBLE_REFUSED
                            : WEIR__TROUBLE_UNREACHABLE;
    memcpy(it->said, said ? job->error : "", said ? sizeof it->said : 1);
    return got;
}

const char *weir__trouble_name(enum weir__trouble trouble)
{
    static const char *const names[WEIR__TROUBLES] = {
        [WEIR__TROUBLE_PEERS] = "peers",
        [WEIR__TROUBLE_UNREACHABLE] = "unreachable",
        [WEIR__TROUBLE_REFUSED] = "refused",
        [WEIR__TROUBLE_LEAST] = "least",
    };
    assert(trouble < WEIR__TROUBLES);
    return names[trouble];
}

#define THE_SLOTS "the key of the peers' slots (prefix=, a zero byte, weir:slices)"

void weir__trouble_text(enum weir__trouble trouble, const char *said, char ret[WEIR__TROUBLE_MAX])
{
    static const char *const texts[WEIR__TROUBLES] = {
        [WEIR__TROUBLE_NONE] = "",
        [WEIR__TROUBLE_PEERS] = "as many processes as peers= says hold slices already; peers= must "
                                "be at least the number of processes, and the same in all of them",
        [WEIR__TROUBLE_UNREACHABLE] = "the server that has " THE_SLOTS " does not answer",
        [WEIR__TROUBLE_REFUSED] = "the server that has " THE_SLOTS " says",
        [WEIR__TROUBLE_LEAST] = "weir_redis.so does not know LEAST, it is older than this program: "
                                "upgrade it. Until then slices= has no effect but for what it "
                                "withholds",
    };
    assert(trouble < WEIR__TROUBLES);
    if (trouble != WEIR__TROUBLE_REFUSED)
        said = "";
    snprintf(ret, WEIR__TROUBLE_MAX, "%s%s%s", texts[trouble], said[0] ? ": " : "", said);
}
