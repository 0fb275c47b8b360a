/* Shares as JSON: for `weir check` and for the server's list of policies. */
#include "policy/policy.h"

#include "wire/json.h"

#define CLASS_ROOM 128 /* names of members, brackets and the percentage */

size_t weir__shares_json_room(const struct weir__shares *shares, const weir_limit *const *reduced)
{
    size_t room = 2 * CLASS_ROOM;
    for (size_t i = 0; shares && i < shares->count; i++)
        room +=
            CLASS_ROOM + 6 * strlen(shares->items[i].name) + strlen(weir_limit_text(reduced[i]));
    return room;
}

void weir__put_shares_json(struct weir__json *json, const struct weir__policies *set,
                           const struct weir__shares *shares, const weir_limit *const *reduced)
{
    if (!shares)
        return;
    weir__json_open(json, "share", '{');
    weir__json_put_string(json, "by", set->attributes.items[shares->attribute].text);
    weir__json_open(json, "classes", '[');
    for (size_t i = 0; i < shares->count; i++) {
        char text[16];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        weir__put_share(&buffer, shares->items[i].millionths);
        weir__json_open(json, NULL, '{');
        weir__json_put_string(json, "class", shares->items[i].name);
        weir__json_put_string(json, "share", text);
        weir__json_put_string(json, "limit", weir_limit_text(reduced[i]));
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}
