/* No memory for Envoy's configuration, whichever allocation it is: an error, nothing leaked,
 * nothing half made. Linked with --wrap for what allocates. */
#include "policy/envoy/envoy.h"
#include "test.h"

#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static long left = -1; /* allocations until one fails; negative: none does */

static bool fails(void)
{
    return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

/* Enough that the table and the list of rules grow, and limits of several parts. */
static char *make_file(int domain)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, "domain: d%d\ndescriptors:\n", domain);
    for (int i = 0; i < 80; i++)
        fprintf(
            file,
            "  - {key: k, value: v%d, rate_limit: {unit: hour, requests_per_unit: %d, name: n%d, "
            "replaces: [{name: x}]}}\n"
            "  - {key: l%d, limit: 'fixed-window 1/m, sliding-log 3/h', descriptors: [{key: "
            "a*}]}\n",
            i, i + 1, i, i);
    fclose(file);
    return text;
}

int main(void)
{
    char *texts[] = {make_file(1), make_file(2)};
    struct weir__envoy_file files[] = {{"a.yaml", texts[0], strlen(texts[0])},
                                       {"b.yaml", texts[1], strlen(texts[1])}};
    struct weir__envoy *envoy = NULL;
    long n = 0;
    for (int code = WEIR_ENOMEM; code == WEIR_ENOMEM; n++) {
        weir_error err = {0};
        left = n;
        code = weir__envoy_load(files, 2, false, &envoy, &err);
        left = -1;
        CHECK(code == 0 || (code == WEIR_ENOMEM && err.code == code && !envoy));
    }
    CHECK(n > 300);
    CHECK(envoy && envoy->rule_count == 320);
    weir__envoy_free(envoy);
    free(texts[0]);
    free(texts[1]);
    return test_report();
}
