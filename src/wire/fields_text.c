/* Rate limit fields as text, for programs that answer over HTTP by themselves: see weir.h. */
#include "wire/fields.h"

#include <assert.h>
#include <string.h>

static int fields_text_find(const weir_request *requests, size_t n, const char *const *names,
                            struct weir__rated *ret, size_t *ret_count, weir_error *err)
{
    size_t count = 0;
    if (!requests || n == 0)
        return weir__fail(err, WEIR_EINVAL, 0, "there are no requests: expected 1 to %d",
                          WEIR_LIMITS_MAX);
    for (size_t i = 0; i < n; i++) {
        const weir_limit *limit = requests[i].limit;
        if (!limit || !requests[i].detail)
            return weir__fail(err, WEIR_EINVAL, 0,
                              "request %zu has no %s: expected what weir_take_all was given", i,
                              limit ? "detail" : "limit");
        if (count + limit->count > WEIR_LIMITS_MAX)
            return weir__fail(err, WEIR_EINVAL, 0, "more than %d limits", WEIR_LIMITS_MAX);
        for (size_t k = 0; k < limit->count; k++, count++)
            ret[count] = (struct weir__rated){names ? names[count] : NULL, &limit->rules[k],
                                              &requests[i].detail[k]};
    }
    *ret_count = count;
    return 0;
}

static char *fields_text_put(char *to, const char *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

int weir_fields(const char *style, const weir_request *requests, size_t n, const char *const *names,
                const weir_decision *folded, char *ret, size_t size, weir_error *err)
{
    struct weir__rated rated[WEIR_LIMITS_MAX];
    struct weir__rate_fields fields;
    enum weir__field_style as;
    size_t count = 0, need = 1;
    if (!folded || !ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the %s NULL",
                          folded ? "room for the fields is" : "decision is");
    if (!style || !weir__field_style_read(style, strlen(style), &as))
        return weir__fail(err, WEIR_EINVAL, 0,
                          "invalid style \"%.40s\": expected ietf, ietf-06, x-ratelimit, openai, "
                          "retry-after or off",
                          style ? style : "");
    int code = fields_text_find(requests, n, names, rated, &count, err);
    if (code)
        return code;
    weir__rate_fields(as, rated, count, folded, &fields);
    for (size_t i = 0; i < fields.count; i++)
        need += strlen(fields.items[i].name) + fields.items[i].value_len + 3;
    if (need > size)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "no room for the fields in %zu bytes: expected WEIR_FIELDS_SIZE, %d",
                          size, WEIR_FIELDS_SIZE);
    char *to = ret;
    for (size_t i = 0; i < fields.count; i++) {
        to = fields_text_put(to, fields.items[i].name, strlen(fields.items[i].name));
        to = fields_text_put(to, ": ", 2);
        to = fields_text_put(to, fields.items[i].value, fields.items[i].value_len);
        *to++ = '\n';
    }
    *to++ = 0;
    assert((size_t)(to - ret) == need);
    return 0;
}
