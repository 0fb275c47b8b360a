/* Limit text: refused with a message and a place, or read into rules whose canonical text gives the
 * same rules again, each sound and explained. */
#include "fuzz.h"

#include "limit/explain.h"
#include "limit/limit.h"

static void check_refusal(const char *text, int code, const weir_error *err)
{
    EXPECT(code == WEIR_ESYNTAX && err->code == code, "code %d", code);
    EXPECT(err->message[0] && memchr(err->message, 0, sizeof err->message), "no message");
    EXPECT(err->column >= 1 && (size_t)err->column <= strlen(text) + 1, "column %d of \"%s\"",
           err->column, text);
    EXPECT(weir_limit_parse(text, &(weir_limit *){NULL}, NULL) == code, "without an error to fill");
}

static void check_rule(const struct weir__rule *rule)
{
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_rule(&buffer, rule);
    EXPECT(!buffer.cut, "\"%s\" is cut", text);
    EXPECT(weir__rule_sound(rule), "\"%s\" is not sound", text);
    struct weir__facts facts;
    weir__explain(rule, &facts);
    EXPECT(facts.what[0] && strlen(facts.what) < sizeof facts.what - 1, "\"%s\": %s", text,
           facts.what);
    EXPECT(facts.guarantee[0] && strlen(facts.guarantee) < sizeof facts.guarantee - 1, "\"%s\": %s",
           text, facts.guarantee);
    EXPECT(facts.most >= 1 || facts.most == WEIR__UNBOUNDED, "\"%s\": most %lld", text,
           (long long)facts.most);
    EXPECT(facts.key_bytes > 0 && facts.span_us >= 0, "\"%s\": facts", text);
}

static void check_limit(const weir_limit *limit)
{
    weir_limit *again = NULL;
    weir_error err = {0};
    const char *text = weir_limit_text(limit);
    EXPECT(weir_limit_count(limit) >= 1 && weir_limit_count(limit) <= WEIR_LIMITS_MAX, "%zu limits",
           weir_limit_count(limit));
    EXPECT(weir_limit_parse(text, &again, &err) == 0, "canonical \"%s\": %s", text, err.message);
    EXPECT(!strcmp(weir_limit_text(again), text), "\"%s\" becomes \"%s\"", text,
           weir_limit_text(again));
    EXPECT(again->count == limit->count &&
               !memcmp(again->rules, limit->rules, limit->count * sizeof limit->rules[0]),
           "\"%s\" gives other rules", text);
    for (size_t i = 0; i < limit->count; i++)
        check_rule(&limit->rules[i]);
    weir_limit_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    weir_limit *limit = NULL;
    weir_error err = {0};
    int code = weir_limit_parse(text, &limit, &err);
    if (code) {
        EXPECT(!limit, "a refusal gives a limit");
        check_refusal(text, code, &err);
    } else {
        check_limit(limit);
    }
    weir_limit_free(limit);
    free(text);
    return 0;
}
