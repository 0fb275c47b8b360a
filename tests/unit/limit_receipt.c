/* Receipts: written, read back, and everything that is none refused. */
#include "core_rig.h"

#include "limit/receipt.h"

static void reads(const char *text, int64_t time, int64_t charged)
{
    struct weir__correction got = {0};
    CHECK(weir__receipt_read(text, &got));
    CHECK_INT(got.charged_at_us, time);
    CHECK_INT(got.charged, charged);
}

static void refuses(const char *text)
{
    struct weir__correction got = {0};
    if (!CHECK(!weir__receipt_read(text, &got)))
        printf("\"%s\" is taken for a receipt\n", text);
}

static void there_and_back(int64_t time, int64_t charged, uint64_t id, const char *expected)
{
    char text[WEIR_RECEIPT_SIZE];
    struct weir__correction got = {0};
    weir__receipt_write(time, charged, id, text);
    CHECK_TEXT(text, expected);
    reads(text, time, charged);
    CHECK(weir__receipt_read(text, &got) && got.id == id);
}

/* One decision, one receipt; another decision, another one. What charged nothing has no id. */
static void test_ids(void)
{
    char first[WEIR_RECEIPT_SIZE], again[WEIR_RECEIPT_SIZE], other[WEIR_RECEIPT_SIZE];
    struct weir__correction got = {0};
    weir_decision a = {.time_us = 7, .charged = 3}, b = a, none = {.time_us = 7};
    weir_receipt(&a, first);
    weir_receipt(&a, again);
    weir_receipt(&b, other);
    CHECK_TEXT(first, again);
    CHECK(strcmp(first, other));
    CHECK(weir__receipt_read(first, &got) && got.id > 0 && got.id <= WEIR__RECEIPT_ID_MAX);
    weir_receipt(&none, first);
    CHECK_TEXT(first, "w1-7-0");
    weir_decision asked = {.time_us = 7, .allowed = true},
                  denied = {.time_us = 7, .degraded = true};
    weir_receipt(&asked, first);
    CHECK_TEXT(first, "w1-7-0");
    weir_receipt(&denied, first);
    CHECK_TEXT(first, "w1-7-0");
    /* that of the local fallback is charged by its settle: once */
    weir_decision owed = {.time_us = 7, .allowed = true, .degraded = true};
    weir_receipt(&owed, first);
    CHECK(weir__receipt_read(first, &got) && got.id > 0 && got.charged == 0);
    /* of a call whose requests were charged different amounts there is none */
    weir_decision uneven = {.time_us = 7, .charged = 3, .allowed = true, .uneven = true};
    weir_receipt(&uneven, first);
    CHECK_TEXT(first, "");
}

int main(void)
{
    there_and_back(0, 0, 0, "w1-0-0");
    there_and_back(INT64_C(1700000000000000), 1, 0, "w1-1700000000000000-1");
    there_and_back(WEIR__EXACT_MAX - 1, WEIR_COST_MAX, 0, "w1-9007199254740991-1000000000000");
    there_and_back(5, 6, 7, "w3-5-6-7");
    there_and_back(WEIR__EXACT_MAX - 1, WEIR_COST_MAX, WEIR__RECEIPT_ID_MAX,
                   "w3-9007199254740991-1000000000000-1099511627775");
    test_ids();
    refuses("w3-1-1");
    refuses("w3-1-1-");
    refuses("w3-1-1-0");
    refuses("w3-1-1-1-");
    refuses("w3-1-1-1099511627776");
    refuses("w4-1-1-1");
    refuses("w1-1-1-1");
    reads("w1-007-0001", 7, 1);
    refuses("");
    refuses("w1");
    refuses("w1-");
    refuses("w2-1-1");
    refuses("W1-1-1");
    refuses("w1--1");
    refuses("w1-1");
    refuses("w1-1-");
    refuses("w1-1-x");
    refuses("w1-1-1-");
    refuses("w1-1-1 ");
    refuses("w1--1-1");
    refuses("w1-1--1");
    refuses("w1-+1-1");
    refuses("w1-9007199254740992-1"); /* 2^53 */
    refuses("w1-1-1000000000001");
    refuses("w1-99999999999999999999999999-1");
    refuses("w1-1-99999999999999999999999999");
    return test_report();
}
