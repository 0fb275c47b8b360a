/*
 * Why no line is as --where asks: what lines have instead. While no line was taken, each condition
 * remembers whether a line fulfilled it, and a few of the values that did not. What is remembered
 * is bounded, and safe to print.
 */
#include "desk/select.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#define SAID_VALUES 4 /* that are named */

/* ---- what lines have ---- */

/* A text that is safe to print, shortened. */
static void hint_keep(struct weir__span text, struct desk_hint_value *ret)
{
    size_t at = 0;
    ret->len = 0;
    while (at < text.len) {
        size_t step = weir__utf8_length(text.data + at, text.len - at);
        bool plain = !weir__utf8_is_harmful(text.data + at, step);
        if (ret->len + (plain ? step : 1) > sizeof ret->text)
            break;
        memcpy(ret->text + ret->len, plain ? text.data + at : "?", plain ? step : 1);
        ret->len = (uint8_t)(ret->len + (plain ? step : 1));
        at += step > 0 ? step : 1;
    }
    ret->cut = at < text.len;
}

static bool hint_is(const struct desk_hint_value *value, const struct desk_hint_value *other)
{
    return value->len == other->len && value->cut == other->cut &&
           !memcmp(value->text, other->text, value->len);
}

/* Counts a value. If there is no room, it takes the place of the rarest one, and its count: so the
 * frequent ones stay. */
static void hint_count(struct desk_hint *hint, const struct desk_hint_value *value)
{
    struct desk_hint_value *rarest = &hint->values[0];
    for (size_t i = 0; i < DESK_HINT_VALUES; i++) {
        struct desk_hint_value *it = &hint->values[i];
        if (it->count > 0 && hint_is(it, value)) {
            it->count++;
            return;
        }
        if (it->count < rarest->count)
            rarest = it;
    }
    int64_t count = rarest->count;
    hint->more |= count > 0;
    *rarest = *value;
    rarest->count = count + 1;
}

/* How a value is like one that was asked for. */
enum hint_likeness { HINT_OTHER, HINT_ALIKE, HINT_BELOW };

static enum hint_likeness hint_compare(struct weir__span value, const char *asked, bool path)
{
    asked = strchr(asked, '=') + 1;
    for (;; asked++) {
        size_t len = strcspn(asked, "|"), bare = len;
        while (path && bare > 1 && asked[bare - 1] == '/')
            bare--;
        bool begins = value.len >= bare && !strncasecmp(value.data, asked, bare);
        bool ends = begins && (value.len == bare ||
                               (path && value.len == bare + 1 && value.data[bare] == '/'));
        if (ends)
            return HINT_ALIKE;
        if (path && begins && bare > 1 && value.data[bare] == '/' &&
            !memcmp(value.data, asked, bare))
            return HINT_BELOW;
        asked += len;
        if (!*asked)
            return HINT_OTHER;
    }
}

void desk_hints_note(struct desk_hints *hints, const struct desk_selection *selection,
                     struct weir__view *view)
{
    for (size_t i = 0; i < selection->conditions.count; i++) {
        const struct weir__conditions one = {&selection->items[i], 1};
        const int attribute = selection->items[i].attribute;
        const enum weir__spelling spelling = selection->attributes.items[attribute].spelling;
        struct desk_hint *hint = &hints->of[i];
        hint->held = hint->held || weir__conditions_hold(&one, view);
        if (hint->held || selection->items[i].negated || !weir__view_has(view, attribute))
            continue;
        struct weir__span text = view->values[attribute];
        char room[64];
        struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
        if (spelling == WEIR__AS_ADDRESS) {
            weir__put_masked(&buffer, weir__view_address(view, attribute), 32, 128);
            text = (struct weir__span){room, buffer.len};
        }
        struct desk_hint_value value = {0};
        hint_keep(text, &value);
        hint_count(hint, &value);
        enum hint_likeness likeness =
            hint_compare(text, selection->where[i], spelling == WEIR__AS_PATH);
        hint->below += likeness == HINT_BELOW;
        struct desk_hint_value *example = likeness == HINT_BELOW   ? &hint->lower
                                          : likeness == HINT_ALIKE ? &hint->alike
                                                                   : NULL;
        if (example && example->len == 0)
            *example = value;
    }
}

/* ---- what is said ---- */

static void hint_put(struct weir__buffer *out, const struct desk_hint_value *value)
{
    weir__put(out, value->text, value->len);
    weir__put_text(out, value->cut ? "…" : "");
}

static void hint_put_text(struct weir__buffer *out, const char *text)
{
    struct desk_hint_value shown = {0};
    hint_keep(weir__span_of(text), &shown);
    hint_put(out, &shown);
}

/* The most frequent values first. */
static void hint_put_values(struct weir__buffer *out, const struct desk_hint *hint)
{
    bool said[DESK_HINT_VALUES] = {false};
    size_t there = 0, named = 0;
    for (size_t i = 0; i < DESK_HINT_VALUES; i++)
        there += hint->values[i].count > 0;
    if (there == 0)
        weir__put_text(out, ": this field is empty in every line");
    for (; named < SAID_VALUES && named < there; named++) {
        size_t best = DESK_HINT_VALUES;
        for (size_t i = 0; i < DESK_HINT_VALUES; i++) {
            if (!said[i] &&
                (best == DESK_HINT_VALUES || hint->values[i].count > hint->values[best].count))
                best = i;
        }
        said[best] = true;
        weir__put_text(out, named ? ", " : "; lines have ");
        hint_put(out, &hint->values[best]);
    }
    weir__put_text(out, there > named || hint->more ? " and others" : "");
}

/* No line fulfilled this condition. */
static void hint_put_condition(struct weir__buffer *out, const struct desk_hint *hint,
                               const char *where, bool negated)
{
    if (negated) {
        weir__put_text(out, "every line has what ");
        hint_put_text(out, where);
        weir__put_text(out, " leaves out");
        return;
    }
    weir__put_text(out, "no line has ");
    hint_put_text(out, where);
    if (hint->alike.len > 0) {
        weir__put_text(out, "; lines have ");
        hint_put(out, &hint->alike);
    } else if (hint->below > 0 && !strpbrk(where, "|*")) {
        weir__put_format(out, "; %" PRId64 " line%s below it, like ", hint->below,
                         hint->below == 1 ? " is" : "s are");
        hint_put(out, &hint->lower);
        weir__put_text(out, ": use ");
        hint_put_text(out, where);
        weir__put_text(out, where[strlen(where) - 1] == '/' ? "*" : "/*");
    } else {
        hint_put_values(out, hint);
    }
}

void desk_hints_say(const struct desk_hints *hints, const struct desk_selection *selection,
                    struct weir__buffer *out)
{
    const size_t count = selection->conditions.count;
    for (size_t i = 0; i < count; i++) {
        if (hints->of[i].held)
            continue;
        hint_put_condition(out, &hints->of[i], selection->where[i], selection->items[i].negated);
        return;
    }
    weir__put_text(out, "each of these has lines, but no line has all of them: ");
    for (size_t i = 0; i < count; i++) {
        weir__put_text(out, i ? " and " : "");
        hint_put_text(out, selection->where[i]);
    }
}
