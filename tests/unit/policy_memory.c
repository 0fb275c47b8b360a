/* No memory for a set of policies, whichever allocation it is: an error, nothing leaked, nothing
 * half made. Linked with --wrap for what allocates. */
#include "policy/policy.h"
#include "test.h"

#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);

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

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    return fails() ? NULL : __real_reallocarray(old, count, size);
}

/* Enough of everything that each kind of allocation starts another block somewhere. */
static char *make_file(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    fprintf(file,
            "version: 1\ntrusted_proxies: [10.0.0.0/8]\ntiers: {gold: smooth 5/s}\npolicies:\n");
    for (int i = 0; i < 60; i++)
        fprintf(file,
                "  - name: p%d\n"
                "    match: {host: \"*.example.com\", path: [/a%d/*, /b, /c*d*e], ip: 10.0.0.0/8}\n"
                "    limits:\n"
                "      - {name: a, key: [lower(header.x-%d), ip/24/64], limit: fixed-window 1/s,\n"
                "         share: {by: user, a*b: 50%%, c: 100%%, d: 50%%, default: 20%%}}\n"
                "      - {name: b, key: \"'all'\", cost: {of: n, max: 3}, tier: gold}\n"
                "    overrides: [{when: {user: [a, b]}, entry: a, limit: fixed-window 2/s}]\n"
                "    allow: [{user: ann}]\n    deny: [{user: eve}, {ip: 1.2.3.4}]\n",
                i, i, i % 20);
    fclose(file);
    return text;
}

int main(void)
{
    char *text = make_file();
    struct weir__policies *set = NULL;
    weir_error err = {0};
    long failures = 0;
    for (long i = 0;; i++) {
        left = i;
        int code = weir__policies_parse(text, strlen(text), "p.yaml", false, &set, &err);
        left = -1;
        if (code == 0)
            break;
        CHECK_INT(code, WEIR_ENOMEM);
        CHECK_INT(err.code, WEIR_ENOMEM);
        CHECK(err.message[0] && !set);
        failures++;
    }
    CHECK(failures > 200);
    CHECK_INT(set->count, 60);
    weir__policies_free(set);
    free(text);
    return test_report();
}
