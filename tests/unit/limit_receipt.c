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

static void there_and_back(int64_t time, int64_t charged, const char *expected)
{
    char text[WEIR_RECEIPT_SIZE];
    weir_decision d = {.time_us = time, .charged = charged};
    weir_receipt(&d, text);
    CHECK_TEXT(text, expected);
    reads(text, time, charged);
}

int main(void)
{
    there_and_back(0, 0, "w1-0-0");
    there_and_back(INT64_C(1700000000000000), 1, "w1-1700000000000000-1");
    there_and_back(WEIR__EXACT_MAX - 1, WEIR_COST_MAX, "w1-9007199254740991-1000000000000");
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
