/* Shares and conditions as JSON: for `weir check` and for the server's list of policies. */
#include "policy/policy.h"

#include "wire/json.h"

#define WORDS_ROOM 640 /* of conditions; longer ones are cut */

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

void weir__put_conditions_json(struct weir__json *json, const char *name,
                               const struct weir__policies *set,
                               const struct weir__conditions *conditions)
{
    char text[WORDS_ROOM];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_conditions(&buffer, conditions, &set->attributes);
    weir__json_put_string(json, name, text);
}
