/* The list of verbs: names, words and the numbers that installed Lua scripts understand. */
#include "test.h"

#include "wire/verbs.h"

/* Installed function libraries know verbs by these numbers: they never change. */
static void test_numbers_of_scripts(void)
{
    static const char *const words[] = {"take",    "peek",  "settle",  "reset",
                                        "acquire", "renew", "release", "show"};
    for (size_t i = 0; i < WEIR__COUNT(words); i++) {
        CHECK_TEXT(weir__verbs[i].word, words[i]);
        CHECK_INT(!!(weir__verbs[i].homes & WEIR__VERB_LUA), 1);
    }
}

static void test_names(void)
{
    for (int i = 0; i < WEIR__VERB_COUNT; i++) {
        char upper[32];
        const char *name = weir__verbs[i].name;
        enum weir__verb verb = (enum weir__verb)WEIR__VERB_COUNT;
        size_t len = strlen(name);
        CHECK_INT(weir__verb_of_name(name, len, &verb) && (int)verb == i, 1);
        for (size_t j = 0; j <= len; j++)
            upper[j] = (char)(name[j] >= 'a' && name[j] <= 'z' ? name[j] - 32 : name[j]);
        CHECK_INT(weir__verb_of_name(upper, len, &verb) && (int)verb == i, 1);
        CHECK_INT(weir__verb_of_word(weir__verbs[i].word, strlen(weir__verbs[i].word), &verb), 1);
        CHECK_INT(verb, i);
    }
}

static void test_no_names(void)
{
    enum weir__verb verb;
    static const char *const wrong[] = {"",           "weir.tak", "weir.takes", "weir\x0etake",
                                        "weir.taKe ", "take",     "WEIR.CLOC",  "weir.tal\x6c"};
    for (size_t i = 0; i < WEIR__COUNT(wrong); i++)
        CHECK_INT(weir__verb_of_name(wrong[i], strlen(wrong[i]), &verb), 0);
    CHECK_INT(weir__verb_of_name("weir.take\0", 10, &verb), 0);
    CHECK_INT(weir__verb_of_word("take\0", 5, &verb), 0);
    CHECK_INT(weir__verb_of_word("Take", 4, &verb), 0);
    CHECK_INT(weir__verb_of_word("", 0, &verb), 0);
}

static void test_facts(void)
{
    CHECK_INT(weir__verbs[WEIR__VERB_CLOCK].caller, WEIR__VERB_ADMIN);
    CHECK_INT(weir__verbs[WEIR__VERB_PEEK].keys, WEIR__VERB_READS);
    CHECK_INT(weir__verbs[WEIR__VERB_SHOW].keys, WEIR__VERB_READS);
    CHECK_INT(weir__verbs[WEIR__VERB_TAKE].keys, WEIR__VERB_WRITES);
    CHECK_TEXT(weir__verbs[WEIR__VERB_THROTTLE].name, "cl.throttle");
}

int main(void)
{
    test_numbers_of_scripts();
    test_names();
    test_no_names();
    test_facts();
    return test_report();
}
