/* No memory for a limit: an error, nothing leaked. Linked with -Wl,--wrap=malloc. */
#include "test.h"
#include "weir.h"

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static bool exhausted;

void *__wrap_malloc(size_t size)
{
    return exhausted ? NULL : __real_malloc(size);
}

int main(void)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    exhausted = true;
    int code = weir_limit_parse("token-bucket 10/s", &limit, &err);
    int code_n = weir_limit_parse_n("token-bucket 10/s", 17, &limit, &err);
    exhausted = false;
    CHECK_INT(code, WEIR_ENOMEM);
    CHECK_INT(code_n, WEIR_ENOMEM);
    CHECK_INT(err.code, WEIR_ENOMEM);
    CHECK(err.message[0]);
    CHECK(!limit);
    CHECK_INT(weir_limit_parse("token-bucket 10/s", &limit, &err), 0);
    weir_limit_free(limit);
    return test_report();
}
