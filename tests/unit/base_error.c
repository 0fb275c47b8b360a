/* Error codes, their names and texts; filling an error; the small sums beside them. */
#include "base/base.h"
#include "test.h"

static const struct {
    int code;
    const char *name, *text;
} known[] = {
    {0, "OK", "success"},
    {-1, "EINVAL", "an argument is outside its bounds"},
    {-2, "ESYNTAX", "the limit text cannot be read"},
    {-3, "EURL", "the store address cannot be read"},
    {-4, "ENOMEM", "out of memory"},
    {-5, "ESYSTEM", "the system refused"},
    {-6, "ETRUNCATED", "the zone file is shorter than it says"},
    {-7, "EFOREIGN", "not a weir zone"},
    {-8, "EVERSION", "a zone of another version or machine"},
    {-9, "EOWNER", "the zone belongs to somebody else"},
    {-10, "EDAMAGED", "the zone is damaged"},
    {-11, "EFULL", "the zone has no room for this state"},
    {-12, "EBUSY", "the zone is held by a process that does not answer"},
    {-13, "ENOLEASE", "no such lease"},
    {-14, "ERECEIPT", "the receipt cannot be read"},
    {-15, "EUNSUPPORTED", "this limit does not do that"},
    {-16, "ESHARED", "two limits of one key would share a state"},
};

/* Codes are part of the interface: a number never changes its meaning. */
static void test_codes(void)
{
    for (size_t i = 0; i < WEIR__COUNT(known); i++) {
        CHECK_TEXT(weir_errname(known[i].code), known[i].name);
        CHECK_TEXT(weir_strerror(known[i].code), known[i].text);
    }
    CHECK_INT(WEIR_ESHARED, -16);
}

static void test_unknown(void)
{
    static const int codes[] = {1, -999, -1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < WEIR__COUNT(codes); i++) {
        CHECK_TEXT(weir_errname(codes[i]), "UNKNOWN");
        CHECK_TEXT(weir_strerror(codes[i]), "unknown error");
    }
}

/* Every code of the list has a name and a text of its own. */
static void test_list(void)
{
#define EACH(name, number, text)                                                                   \
    CHECK_INT(WEIR_##name, -number);                                                               \
    CHECK_TEXT(weir_errname(-number), #name);                                                      \
    CHECK_TEXT(weir_strerror(-number), text);
    WEIR_ERRORS(EACH)
#undef EACH
}

static void test_fail(void)
{
    weir_error err = {0};
    CHECK_INT(weir__fail(&err, WEIR_EURL, 7, "%s is %d", "it", 5), WEIR_EURL);
    CHECK_INT(err.code, WEIR_EURL);
    CHECK_INT(err.column, 7);
    CHECK(!strcmp(err.message, "it is 5"));
    CHECK_INT(weir__fail(NULL, WEIR_EURL, 7, "nobody asked"), WEIR_EURL);
    CHECK_INT(weir__fail(&err, WEIR_EINVAL, 0, "%1000d", 1), WEIR_EINVAL);
    CHECK_INT(strlen(err.message), sizeof err.message - 1); /* cut, never beyond */
}

static void test_sums(void)
{
    CHECK_INT(weir__min(-1, 2), -1);
    CHECK_INT(weir__min(2, -1), -1);
    CHECK_INT(weir__max(-1, 2), 2);
    CHECK_INT(weir__max(2, -1), 2);
    CHECK_INT(weir__div_up(0, 3), 0);
    CHECK_INT(weir__div_up(1, 3), 1);
    CHECK_INT(weir__div_up(3, 3), 1);
    CHECK_INT(weir__div_up(4, 3), 2);
    CHECK_INT(weir__div_up(INT64_MAX, 1), INT64_MAX);
    CHECK_INT(weir__div_up(INT64_MAX, 2), INT64_MAX / 2 + 1);
    CHECK_INT(weir__div_up(INT64_MAX, INT64_MAX), 1);
}

int main(void)
{
    test_codes();
    test_unknown();
    test_list();
    test_fail();
    test_sums();
    return test_report();
}
