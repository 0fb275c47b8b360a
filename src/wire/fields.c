/* Rate limit fields: see fields.h. Written by hand, since every answer of a server carries them. */
#include "wire/fields.h"

#include "base/span.h"

#include <assert.h>
#include <string.h>

#define NAME_MAX_BYTES 64
#define INTEGER_MAX INT64_C(999999999999999) /* RFC 9651, section 3.3.1 */
/* The longest that one limit becomes: a name all escapes with its "-16", three parameters. */
#define ITEM_MAX (2 * NAME_MAX_BYTES + 5 + 2 * 18 + 25 + 1)

/* ---- what a rule is called ---- */

static struct weir__span fields_name_of(const struct weir__rated *rated)
{
    const char *name = rated->name ? rated->name : weir__algorithm_of(rated->rule)->name;
    return (struct weir__span){name, strnlen(name, NAME_MAX_BYTES)};
}

/* A structured field's string holds printable ASCII. */
static inline char fields_shown(char c)
{
    return c >= ' ' && c <= '~' ? c : '?';
}

static bool fields_same_start(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (fields_shown(a[i]) != fields_shown(b[i]))
            return false;
    }
    return true;
}

/* Whether name is base, with "-number" after it where number is not 0. */
static bool fields_is_numbered(struct weir__span name, struct weir__span base, int number)
{
    char digits[8] = "";
    struct weir__buffer suffix = weir__buffer_over(digits, sizeof digits);
    if (number)
        weir__put_int(&suffix, -number);
    return name.len == base.len + suffix.len && fields_same_start(name.data, base.data, base.len) &&
           !memcmp(name.data + base.len, digits, suffix.len);
}

static bool fields_is_taken(const struct weir__rated *rated, size_t n, struct weir__span base,
                            int number)
{
    for (size_t i = 0; i < n; i++) {
        if (fields_is_numbered(fields_name_of(&rated[i]), base, number))
            return true;
    }
    return false;
}

/* What goes after the name of limit i, so that no two are alike: 0, nothing, or 2 and up. */
static int fields_number_of(const struct weir__rated *rated, size_t n, size_t i)
{
    struct weir__span base = fields_name_of(&rated[i]);
    int number = 0;
    for (size_t k = 0; k < i; k++) {
        if (!fields_is_numbered(fields_name_of(&rated[k]), base, 0))
            continue;
        number = number ? number + 1 : 2;
        while (fields_is_taken(rated, n, base, number))
            number++;
    }
    return number;
}

/* ---- writing; the caller made sure that there is room ---- */

static inline char *fields_put_bytes(char *to, const char *text, size_t len)
{
    memcpy(to, text, len);
    return to + len;
}
#define PUT(to, literal) fields_put_bytes(to, literal, sizeof(literal) - 1)

static inline char *fields_put_number(char *to, int64_t number)
{
    char digits[16], *p = digits + sizeof digits;
    uint64_t rest = (uint64_t)weir__min(weir__max(number, 0), INTEGER_MAX);
    do
        *--p = (char)('0' + rest % 10);
    while (rest /= 10);
    return fields_put_bytes(to, p, (size_t)(digits + sizeof digits - p));
}

static inline int64_t fields_seconds_up(int64_t microseconds)
{
    return (int64_t)((uint64_t)microseconds / 1000000 + ((uint64_t)microseconds % 1000000 != 0));
}

static char *fields_put_name(char *to, const struct weir__rated *rated, int number)
{
    struct weir__span name = fields_name_of(rated);
    *to++ = '"';
    for (size_t i = 0; i < name.len; i++) {
        char c = fields_shown(name.data[i]);
        if (WEIR__UNLIKELY(c == '"' || c == '\\'))
            *to++ = '\\';
        *to++ = c;
    }
    if (number) {
        *to++ = '-';
        to = fields_put_number(to, number);
    }
    *to++ = '"';
    return to;
}

static char *fields_put_policy(char *to, const struct weir__rated *rated)
{
    to = PUT(to, ";q=");
    to = fields_put_number(to, rated->row->limit);
    if (weir__algorithm_of(rated->rule)->leases)
        to = PUT(to, ";qu=\"concurrent-requests\"");
    to = PUT(to, ";w=");
    int64_t window_us = weir__window_us(rated->rule, rated->row->time_us);
    return fields_put_number(to, weir__max(1, fields_seconds_up(window_us)));
}

/* When there will be more, or WEIR_NEVER. */
static inline int64_t fields_more_in_us(const weir_decision *row)
{
    return row->allowed ? row->reset_after_us : row->retry_after_us;
}

static char *fields_put_left(char *to, const struct weir__rated *rated)
{
    int64_t more_us = fields_more_in_us(rated->row);
    to = PUT(to, ";r=");
    to = fields_put_number(to, rated->row->remaining);
    if (more_us < 0)
        return to;
    to = PUT(to, ";t=");
    return fields_put_number(to, fields_seconds_up(more_us));
}

/* ---- fields ---- */

static void fields_add(struct weir__rate_fields *ret, const char *name, const char *value,
                       const char *end)
{
    ret->items[ret->count].name = name;
    ret->items[ret->count].value = value;
    ret->items[ret->count++].value_len = (size_t)(end - value);
}

/* Limits as a list: what each is called, with its number, and what `put` says of it. */
static char *fields_add_list(struct weir__rate_fields *ret, char *to, const char *field,
                             const struct weir__rated *rated, const int *numbers, size_t n,
                             char *(*put)(char *, const struct weir__rated *))
{
    const char *value = to, *end = ret->room + sizeof ret->room;
    for (size_t i = 0; i < n && end - to >= ITEM_MAX; i++) {
        if (i > 0)
            *to++ = ',';
        to = fields_put_name(to, &rated[i], numbers[i]);
        to = put(to, &rated[i]);
    }
    if (to > value)
        fields_add(ret, field, value, to);
    return to;
}

static char *fields_add_number(struct weir__rate_fields *ret, char *to, const char *field,
                               int64_t number)
{
    char *end = fields_put_number(to, number);
    fields_add(ret, field, to, end);
    return end;
}

static char *fields_add_triple(struct weir__rate_fields *ret, char *to, const char *const names[3],
                               const weir_decision *row)
{
    to = fields_add_number(ret, to, names[0], row->limit);
    to = fields_add_number(ret, to, names[1], row->remaining);
    if (fields_more_in_us(row) >= 0)
        to = fields_add_number(ret, to, names[2], fields_seconds_up(fields_more_in_us(row)));
    return to;
}

/* ---- OpenAI's: three for each name ---- */

#define NAMED_PREFIX "x-ratelimit-remaining-" /* the longest */
/* Three fields of a name: their names with a 0 behind, two numbers, and a duration. */
#define NAMED_MAX (3 * (sizeof(NAMED_PREFIX) + NAME_MAX_BYTES) + 2 * 15 + 32)

/* What a field's name may hold: letters in lower case, digits and some signs. */
static char fields_token(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c | 0x20);
    bool solid = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    return solid || c == '_' || c == '.' ? c : '-';
}

static bool fields_same_token(struct weir__span a, struct weir__span b)
{
    bool same = a.len == b.len;
    for (size_t i = 0; i < a.len && same; i++)
        same = fields_token(a.data[i]) == fields_token(b.data[i]);
    return same;
}

/* Whether b tells more about what can still be taken: it denies, or has less left. */
static bool fields_is_tighter(const weir_decision *b, const weir_decision *a)
{
    if (a->allowed != b->allowed)
        return a->allowed;
    return b->remaining < a->remaining;
}

/* The row that stands for the name of limit i; NULL: an earlier limit has that name. */
static const weir_decision *fields_named_row(const struct weir__rated *rated, size_t n, size_t i)
{
    struct weir__span name = fields_name_of(&rated[i]);
    const weir_decision *row = rated[i].row;
    for (size_t k = 0; k < n; k++) {
        if (k == i || !fields_same_token(fields_name_of(&rated[k]), name))
            continue;
        if (k < i)
            return NULL;
        row = fields_is_tighter(rated[k].row, row) ? rated[k].row : row;
    }
    return row;
}

/* As Go writes durations, in whole milliseconds, rounded up: 0s, 20ms, 1.5s, 6m0s, 1h0m0s. */
static char *fields_put_duration(char *to, int64_t us)
{
    uint64_t ms = (uint64_t)us / 1000 + ((uint64_t)us % 1000 != 0), s = ms / 1000, rest = ms % 1000;
    if (s == 0 && ms > 0) {
        to = fields_put_number(to, (int64_t)ms);
        return PUT(to, "ms");
    }
    if (s >= 3600) {
        to = fields_put_number(to, (int64_t)(s / 3600));
        *to++ = 'h';
    }
    if (s >= 60) {
        to = fields_put_number(to, (int64_t)(s / 60 % 60));
        *to++ = 'm';
    }
    to = fields_put_number(to, (int64_t)(s % 60));
    if (rest > 0) {
        *to++ = '.';
        for (uint64_t digit = 100; rest > 0; rest %= digit, digit /= 10)
            *to++ = (char)('0' + rest / digit);
    }
    *to++ = 's';
    return to;
}

/* The name of a field: prefix and limit, with a 0 behind. */
static char *fields_put_field_name(char *to, const char *prefix, struct weir__span name)
{
    to = fields_put_bytes(to, prefix, strlen(prefix));
    for (size_t i = 0; i < name.len; i++)
        *to++ = fields_token(name.data[i]);
    *to++ = 0;
    return to;
}

static void fields_add_named(struct weir__rate_fields *ret, char *to,
                             const struct weir__rated *rated, size_t n)
{
    const char *end = ret->room + sizeof ret->room;
    for (size_t i = 0; i < n && end - to >= (ptrdiff_t)NAMED_MAX; i++) {
        const weir_decision *row = fields_named_row(rated, n, i);
        struct weir__span name = fields_name_of(&rated[i]);
        if (!row)
            continue;
        assert(ret->count + 3 <= WEIR__RATE_FIELDS_MAX);
        char *value = fields_put_field_name(to, "x-ratelimit-limit-", name);
        char *next = fields_add_number(ret, value, to, row->limit);
        value = fields_put_field_name(next, NAMED_PREFIX, name);
        to = fields_add_number(ret, value, next, row->remaining);
        value = fields_put_field_name(to, "x-ratelimit-reset-", name);
        next = fields_put_duration(value, row->reset_after_us);
        fields_add(ret, to, value, next);
        to = next;
    }
}

void weir__rate_fields(enum weir__field_style style, const struct weir__rated *rated, size_t n,
                       const weir_decision *folded, struct weir__rate_fields *ret)
{
    static const char *const ietf_06[] = {"ratelimit-limit", "ratelimit-remaining",
                                          "ratelimit-reset"};
    static const char *const x[] = {"x-ratelimit-limit", "x-ratelimit-remaining",
                                    "x-ratelimit-reset"};
    char *to = ret->room;
    assert(n <= WEIR_LIMITS_MAX);
    ret->count = 0;
    if (style == WEIR__FIELDS_OFF || n == 0)
        return;
    if (!folded->allowed && folded->retry_after_us >= 0)
        to = fields_add_number(ret, to, "retry-after", fields_seconds_up(folded->retry_after_us));
    if (style == WEIR__FIELDS_RETRY)
        return;
    if (style == WEIR__FIELDS_IETF || style == WEIR__FIELDS_OPENAI) {
        int numbers[WEIR_LIMITS_MAX];
        for (size_t i = 0; i < n; i++)
            numbers[i] = fields_number_of(rated, n, i);
        to = fields_add_list(ret, to, "ratelimit", rated, numbers, n, fields_put_left);
        to = fields_add_list(ret, to, "ratelimit-policy", rated, numbers, n, fields_put_policy);
        if (style == WEIR__FIELDS_OPENAI)
            fields_add_named(ret, to, rated, n);
        return;
    }
    const weir_decision *row = rated[folded->binding < n ? folded->binding : 0].row;
    fields_add_triple(ret, to, style == WEIR__FIELDS_X ? x : ietf_06, row);
}

const char *const weir__field_styles[] = {
    [WEIR__FIELDS_IETF] = "ietf",         [WEIR__FIELDS_IETF_06] = "ietf-06",
    [WEIR__FIELDS_X] = "x-ratelimit",     [WEIR__FIELDS_OPENAI] = "openai",
    [WEIR__FIELDS_RETRY] = "retry-after", [WEIR__FIELDS_OFF] = "off"};

bool weir__field_style_read(const char *text, size_t len, enum weir__field_style *ret)
{
    for (size_t i = 0; i < WEIR__COUNT(weir__field_styles); i++) {
        if (weir__span_is((struct weir__span){text, len}, weir__field_styles[i])) {
            *ret = (enum weir__field_style)i;
            return true;
        }
    }
    return false;
}
