/* Slots of keys, against what Redis Cluster's specification and servers say. */
#include "remote/fleet.h"

#include "test.h"

static unsigned slot(const char *prefix, const char *name)
{
    return weir__cluster_slot(prefix, strlen(prefix), name, strlen(name));
}

static void test_known(void)
{
    CHECK_INT(slot("", "123456789"), 0x31c3); /* the specification's example */
    CHECK_INT(slot("", "foo"), 12182);
    CHECK_INT(slot("", "bar"), 5061);
    CHECK_INT(slot("", ""), 0);
}

static void test_tags(void)
{
    CHECK_INT(slot("", "{foo}bar"), slot("", "foo"));
    CHECK_INT(slot("", "foo{bar}{zap}"), slot("", "bar"));
    CHECK_INT(slot("", "foo{{bar}}zap"), slot("", "{bar"));
    CHECK(slot("", "foo{}{bar}") != slot("", "bar")); /* an empty tag is none */
    CHECK(slot("", "foo{bar") != slot("", "bar"));
}

/* Wherever a key is cut in two, it stays in its slot. */
static void test_parts(void)
{
    static const char *const keys[] = {"weir:{user:7}:login", "a}b{c}d", "plain", "{}", "x{y}"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t cut = 0; cut <= strlen(keys[i]); cut++)
            CHECK_INT(weir__cluster_slot(keys[i], cut, keys[i] + cut, strlen(keys[i]) - cut),
                      slot("", keys[i]));
    }
}

int main(void)
{
    test_known();
    test_tags();
    test_parts();
    return test_report();
}
