/* See decision.h. */
#include "wire/decision.h"

#include "limit/limit.h"

#include <assert.h>
#include <string.h>

const char *weir__verdict_word(enum weir__verdict verdict)
{
    static const char *const words[] = {
#define X(constant, word) word,
        WEIR__VERDICTS(X)
#undef X
    };
    assert((size_t)verdict < WEIR__COUNT(words));
    return words[verdict];
}

/* ---- numbers ---- */

static int64_t decision_throttle_seconds(int64_t us)
{
    return us < 0 ? -1 : weir__div_up(us, 1000000);
}

void weir__throttle_numbers(const weir_decision *decision, int64_t ret[WEIR__THROTTLE_NUMBERS])
{
    ret[0] = !decision->allowed;
    ret[1] = decision->limit;
    ret[2] = decision->remaining;
    ret[3] = decision->allowed ? -1 : decision_throttle_seconds(decision->retry_after_us);
    ret[4] = decision_throttle_seconds(decision->reset_after_us);
}

/* ---- RESP ---- */

char *weir__resp_write_row(char *to, const weir_decision *row)
{
    to = weir__resp_write_number(to, ':', row->allowed);
    to = weir__resp_write_number(to, ':', row->limit);
    to = weir__resp_write_number(to, ':', row->remaining);
    to = weir__resp_write_number(to, ':', row->retry_after_us);
    to = weir__resp_write_number(to, ':', row->reset_after_us);
    return weir__resp_write_number(to, ':', row->delay_us);
}

static void resp_put_row(struct weir__buffer *out, const weir_decision *row)
{
    char room[WEIR__RESP_ROW_MAX];
    weir__put(out, room, (size_t)(weir__resp_write_row(room, row) - room));
}

void weir__resp_put_decision(struct weir__buffer *out, const weir_decision *decision,
                             struct weir__span receipt, bool granted, bool lease,
                             const weir_decision *rows, size_t row_count)
{
    size_t elements = WEIR__ROW_NUMBERS + 1 + granted + lease + (rows ? 1 + row_count : 0);
    weir__resp_put_header(out, WEIR__RESP_ARRAY, elements, 2);
    resp_put_row(out, decision);
    weir__resp_put_bulk(out, receipt.data, receipt.len);
    if (granted)
        weir__resp_put_integer(out, decision->granted);
    if (lease)
        weir__resp_put_integer(out, (int64_t)decision->lease);
    if (!rows)
        return;
    assert(decision->binding < row_count || row_count == 0);
    weir__resp_put_integer(out, decision->binding);
    for (size_t i = 0; i < row_count; i++) {
        weir__resp_put_header(out, WEIR__RESP_ARRAY, WEIR__ROW_NUMBERS + granted, 2);
        resp_put_row(out, &rows[i]);
        if (granted)
            weir__resp_put_integer(out, rows[i].granted);
    }
}

void weir__resp_put_throttle(struct weir__buffer *out, const weir_decision *decision)
{
    int64_t numbers[WEIR__THROTTLE_NUMBERS];
    weir__throttle_numbers(decision, numbers);
    weir__resp_put_header(out, WEIR__RESP_ARRAY, WEIR__THROTTLE_NUMBERS, 2);
    for (size_t i = 0; i < WEIR__THROTTLE_NUMBERS; i++)
        weir__resp_put_integer(out, numbers[i]);
}

void weir__resp_put_states(struct weir__buffer *out, const struct weir__shown *states, size_t n)
{
    weir__resp_put_header(out, WEIR__RESP_ARRAY, n, 2);
    for (size_t i = 0; i < n; i++) {
        const char *name = weir__kind_name((enum weir__kind)states[i].rule.kind);
        int64_t numbers[WEIR__SHOWN_NUMBERS];
        weir__shown_numbers(&states[i], numbers);
        weir__resp_put_header(out, WEIR__RESP_ARRAY, 2 + 2 * WEIR__SHOWN_NUMBERS, 2);
        weir__resp_put_bulk(out, "algorithm", 9);
        weir__resp_put_bulk(out, name, strlen(name));
        for (size_t j = 0; j < WEIR__SHOWN_NUMBERS; j++) {
            weir__resp_put_bulk(out, weir__shown_names[j], strlen(weir__shown_names[j]));
            weir__resp_put_integer(out, numbers[j]);
        }
    }
}

/* ---- JSON ---- */

void weir__json_put_decision(struct weir__json *json, const weir_decision *decision)
{
    weir__json_put_bool(json, "allowed", decision->allowed);
    weir__json_put_numbers(json, decision);
    weir__json_put_int(json, "granted", decision->granted);
}

void weir__json_put_numbers(struct weir__json *json, const weir_decision *decision)
{
    weir__json_put_int(json, "limit", decision->limit);
    weir__json_put_int(json, "remaining", decision->remaining);
    weir__json_put_seconds(json, "retry_after", decision->retry_after_us);
    weir__json_put_seconds(json, "reset_after", decision->reset_after_us);
    weir__json_put_seconds(json, "delay", decision->delay_us);
}

void weir__json_put_limit(struct weir__json *json, const char *name, const weir_limit *limit,
                          size_t i)
{
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_limit(&buffer, limit, i);
    weir__json_put_text(json, name, text, buffer.len);
}

void weir__json_put_rule(struct weir__json *json, const char *name, const struct weir__rule *rule)
{
    weir__json_put_string(json, name, weir__rule_text(rule).text);
}

void weir__json_put_state(struct weir__json *json, const struct weir__shown *state)
{
    int64_t numbers[WEIR__SHOWN_NUMBERS];
    weir__shown_numbers(state, numbers);
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "algorithm", weir__kind_name((enum weir__kind)state->rule.kind));
    if (state->whole)
        weir__json_put_rule(json, "limit", &state->rule);
    for (size_t i = 0; i < WEIR__SHOWN_NUMBERS; i++)
        weir__json_put_int(json, weir__shown_names[i], numbers[i]);
    if (state->remaining >= 0)
        weir__json_put_int(json, "remaining", state->remaining);
    if (state->retry_after_us >= 0)
        weir__json_put_seconds(json, "retry_after", state->retry_after_us);
    weir__json_close(json, '}');
}
