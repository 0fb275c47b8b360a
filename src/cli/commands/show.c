/* `weir show`: every state of a key, in words or as JSON. */
#include "base/clock.h"
#include "base/duration.h"
#include "cli/request.h"
#include "core/calendar.h"
#include "limit/calendar.h"
#include "store/store.h"

#include <inttypes.h>

#define TEXT_MAX 512

static bool show_is_calendar(const struct weir__rule *rule)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    return algorithm->extra == WEIR__EXTRA_CALENDAR && !algorithm->flaw(rule);
}

/* A window of the calendar without its count; false: it is not one. */
static bool show_put_calendar(struct weir__buffer *text, const struct weir__rule *rule)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    struct weir__rule one = *rule;
    if (!show_is_calendar(rule))
        return false;
    one.count = 1;
    weir__put_format(text, "%s …%s", algorithm->name, strchr(weir__rule_text(&one).text, '/'));
    return true;
}

/* The limit of the last charge, or the part of it that the store keeps. */
static void show_put_limit(struct weir__buffer *text, const struct weir__shown *shown)
{
    if (shown->whole) {
        weir__put_rule(text, &shown->rule);
        return;
    }
    if (show_put_calendar(text, &shown->rule))
        return;
    weir__put_text(text, weir__kind_name((enum weir__kind)shown->rule.kind));
    if (weir__algorithm_of(&shown->rule)->leases)
        weir__put_text(text, " lease ");
    else if (shown->count > 0)
        weir__put_format(text, " %" PRId64 "/", shown->count);
    else
        weir__put_text(text, " …/");
    weir__put_duration(text, shown->rule.period_us, false);
    if (weir__precision(&shown->rule) > 0) {
        weir__put_text(text, " precision ");
        weir__put_duration(text, shown->rule.extra, false);
    }
}

static void show_put_times(struct weir__buffer *text, const struct weir__shown *shown, int64_t now)
{
    bool permits = weir__algorithm_of(&shown->rule)->shape == WEIR__SHAPE_PERMITS;
    if (permits && shown->at_us > now) {
        weir__put_format(text, ", free in %s", cli_about(shown->at_us - now).text);
    }
    if (shown->fresh_us > now)
        weir__put_format(text, ", expires in %s", cli_about(shown->fresh_us - now).text);
    else
        weir__put_text(text, ", expired");
    if (shown->fresh_us > now && show_is_calendar(&shown->rule)) {
        weir__put_text(text, ", on ");
        weir__put_time(text, shown->fresh_us, weir__calendar_of(&shown->rule).zone);
    }
}

static void show_print_state(const struct weir__shown *shown, int64_t now)
{
    char line[TEXT_MAX];
    struct weir__buffer text = weir__buffer_over(line, sizeof line);
    show_put_limit(&text, shown);
    if (weir__algorithm_of(&shown->rule)->shape == WEIR__SHAPE_PERMITS)
        weir__put_format(&text, ": %" PRId64 " saved", shown->stored);
    else
        weir__put_format(&text, ": %" PRId64 " used", shown->spent);
    if (shown->remaining >= 0)
        weir__put_format(&text, ", %" PRId64 " left", shown->remaining);
    if (weir__algorithm_of(&shown->rule)->leases)
        weir__put_format(&text, ", %" PRId64 " lease%s", shown->entries,
                         shown->entries == 1 ? "" : "s");
    else if (shown->entries > 0)
        weir__put_format(&text, ", %" PRId64 " entr%s", shown->entries,
                         shown->entries == 1 ? "y" : "ies");
    show_put_times(&text, shown, now);
    puts(line);
}

/* The time by which the states were looked at: of a server by its clock, not by the caller's. */
static int64_t show_now(weir_store *store)
{
    int64_t now = cli_is_server(store) ? cli_server_now(store) : -1;
    return now >= 0 ? now : weir__clock_us();
}

static int show_work(const struct cli_call *call, const struct cli_request *request)
{
    struct weir__shown shown[WEIR__SHOWN_MAX];
    size_t count = 0;
    int code = weir__store_show(request->store, request->key, shown, &count);
    if (code)
        return cli_refused(call, request->store, code);
    if (request->json) {
        struct weir__json json = cli_request_json(request);
        weir__json_put_int(&json, "now", show_now(request->store));
        weir__json_open(&json, "states", '[');
        for (size_t i = 0; i < count; i++)
            weir__json_put_state(&json, &shown[i]);
        weir__json_close(&json, ']');
        cli_json_end(&json, '}');
        return CLI_OK;
    }
    if (count == 0) {
        printf("%s has no state\n", cli_show(request->key.data, request->key.len).text);
        if (!memchr(request->key.data, '{', request->key.len))
            puts("Keys of client addresses are like ip:192.0.2.7 or ip:2001:db8:1:2::/64.\n"
                 "Keys of policies are like POLICY/LIMIT/{customer=bob}; weir explain --server "
                 "and weir check --request name them.\n"
                 "Keys of a rule in shadow, in Python and Node, are like "
                 "shadow.NAME:ip:192.0.2.7.\n"
                 "Keys of other rules there may begin with their name or path, like "
                 "user:customer:bob or login:192.0.2.7.");
    }
    for (size_t i = 0; i < count; i++)
        show_print_state(&shown[i], show_now(request->store));
    return CLI_OK;
}

const struct cli_command cli_show_states = {
    .name = "show",
    .summary = "show every state of a key",
    .run = cli_request_run,
    .looks = true,
    .work = show_work,
};
