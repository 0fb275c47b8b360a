/* nginx's limit_req as it is written here: whoever pastes a line of nginx reads what to write
 * instead. */
#include "limit/limit.h"

#include <string.h>

/* Words of nginx, and what they are here. */
static const struct {
    const char *word, *here;
} limit_req_words[] = {{"burst=", " burst "}, {"delay=", " delay "}, {"nodelay", " nodelay"}};

/* The value of the first word that begins like this: as far as it can be a rate or a count. NULL:
 * there is none. */
static const char *limit_req_find(const char *text, const char *begin, size_t *ret_len)
{
    const char *at = text;
    do {
        at += strspn(at, " ,;");
        if (!strncmp(at, begin, strlen(begin))) {
            at += strlen(begin);
            *ret_len = strspn(at, "0123456789kmgrs/");
            return at;
        }
        at += strcspn(at, " ,;");
    } while (*at);
    return NULL;
}

bool weir__limit_req_is(const char *text)
{
    return !strncmp(text, "limit_req", 9) || !strncmp(text, "rate=", 5);
}

void weir__put_limit_req(struct weir__buffer *buffer, const char *text)
{
    size_t len = 0;
    const char *rate = limit_req_find(text, "rate=", &len);
    weir__put_text(buffer, "leaky-bucket ");
    bool known = rate && len > 0;
    weir__put(buffer, known ? rate : "10r/s", known ? len : 5);
    for (size_t i = 0; i < WEIR__COUNT(limit_req_words); i++) {
        const char *value = limit_req_find(text, limit_req_words[i].word, &len);
        if (!value || (len == 0 && value[-1] == '='))
            continue;
        weir__put_text(buffer, limit_req_words[i].here);
        weir__put(buffer, value, len);
    }
    weir__put_text(buffer, known ? "" : ", with the rate of its limit_req_zone");
}
