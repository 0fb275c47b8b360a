/* See explain_slices.h. */
#include "cli/explain_slices.h"

#include "remote/slices.h"
#include "wire/json.h"
#include "wire/url.h"

#include <inttypes.h>

/* How many decisions of cost 1 a call gains while a process is busy with the key. Under the limit
 * it asks again when half of what it holds is gone. Over it, it asks for two thirds of a slice at
 * least, and some of these calls are denied because others were first. Both are estimates for as
 * many processes as there are peers, all busy; docs/SLICES.md has a table of a simulation. */
#define UNDER_PARTS 2
#define OVER_PARTS 5
#define WORTH_IT 20 /* what a process should be able to hold */

int cli_slicing_read(const struct cli_call *call, const char *url, struct weir__slicing *ret)
{
    struct weir__redis_url parsed;
    weir_error err = {0};
    if (!weir__is_redis_url(url))
        return cli_fail(call, CLI_USAGE,
                        "invalid --store \"%s\": explain needs it for slices only, which Redis "
                        "stores have: redis://127.0.0.1?slices=5%%&peers=10",
                        cli_show_text(url).text);
    if (weir__redis_url_parse(url, &parsed, &err))
        return cli_fail(call, CLI_USAGE, "%s", err.message);
    if (parsed.slices == 0)
        return cli_fail(call, CLI_USAGE,
                        "the address of --store says nothing of slices: add slices=5%% and "
                        "peers=10, like redis://127.0.0.1?slices=5%%&peers=10");
    *ret = weir__slicing_of(&parsed);
    return CLI_OK;
}

/* What slices do for one limit of a list. */
struct sliced {
    struct weir__slice_terms terms;
    bool withholds;               /* Redis is asked with a smaller size */
    bool serves;                  /* takes are answered from slices */
    struct weir__rule_text asked; /* what Redis is asked with */
    char why[160];                /* takes are not served: why */
};

static void sliced_why(const struct cli_slice_use *use, const weir_limit *limit, size_t i,
                       struct sliced *it)
{
    struct weir__buffer why = weir__buffer_over(it->why, sizeof it->why);
    int64_t cost = weir__limit_asked(limit, i, use->cost);
    if (!it->terms.size)
        weir__put_text(&why, "limits of this kind have no slices");
    else if (it->terms.most < 2)
        weir__put_format(
            &why, "of %" PRId64 " each of %d peers could hold %" PRId64 ", and 2 are the least",
            it->terms.size, (int)use->slicing->peers, it->terms.most);
    else if (limit->count > 1)
        weir__put_text(&why, "a request under several limits is always asked");
    else if (use->why)
        weir__put_text(&why, use->why);
    else if (cost > it->terms.size - it->terms.withheld)
        weir__put_format(&why, "a request costs %" PRId64 ", and is always denied", cost);
    else if (cost > it->terms.most)
        weir__put_format(&why, "a request costs %" PRId64 ", more than a process may hold", cost);
}

static void slicing_study(const struct cli_slice_use *use, const weir_limit *limit, size_t i,
                          struct sliced *ret)
{
    struct weir__rule asked = limit->rules[i];
    *ret = (struct sliced){0};
    bool sliced = weir__slice_terms(use->slicing, &limit->rules[i], &ret->terms);
    ret->withholds = sliced && ret->terms.withheld > 0;
    if (ret->withholds)
        weir__rule_withhold(&asked, ret->terms.withheld);
    ret->asked = weir__rule_text(&asked);
    sliced_why(use, limit, i, ret);
    ret->serves = ret->why[0] == 0;
    assert(sliced || !ret->serves);
}

void cli_slicing_print(const struct cli_slice_use *use, const weir_limit *limit, size_t i,
                       int column)
{
    struct sliced it;
    char text[640];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    slicing_study(use, limit, i, &it);
    if (!it.serves)
        weir__put_format(&buffer, "none: %s. ", it.why);
    else
        weir__put_format(&buffer, "each process may hold %" PRId64 " of %" PRId64 ". ",
                         it.terms.most, it.terms.size);
    if (it.withholds)
        weir__put_format(&buffer, "%" PRId64 " are withheld: Redis is asked with \"%s\".",
                         it.terms.withheld, it.asked.text);
    else
        weir__put_text(&buffer, "Nothing is withheld.");
    if (it.serves)
        weir__put_format(
            &buffer,
            " One call gains about %" PRId64 " decisions under the limit and %" PRId64
            " over it, if requests cost 1 and keep the process busy.%s",
            it.terms.most / UNDER_PARTS, weir__max(1, it.terms.most / OVER_PARTS),
            it.terms.most < WORTH_IT
                ? " That is hardly worth it, but denials are remembered, too: a key over "
                  "its limit costs one call per second or less."
                : "");
    cli_print_labelled("slices", column, text);
}

void cli_slicing_put(struct weir__json *json, const char *name, const struct cli_slice_use *use,
                     const weir_limit *limit, size_t i)
{
    struct sliced it;
    slicing_study(use, limit, i, &it);
    weir__json_open(json, name, '{');
    weir__json_put_bool(json, "sliced", it.serves);
    weir__json_put_string(json, "why", it.serves ? NULL : it.why);
    weir__json_put_int(json, "withheld", it.withholds ? it.terms.withheld : 0);
    weir__json_put_int(json, "held_by_one", it.serves ? it.terms.most : 0);
    weir__json_put_string(json, "asked", it.asked.text);
    weir__json_put_int(json, "decisions_per_call", it.serves ? it.terms.most / UNDER_PARTS : 1);
    weir__json_put_int(json, "decisions_per_call_over",
                       it.serves ? weir__max(1, it.terms.most / OVER_PARTS) : 1);
    weir__json_close(json, '}');
}

void cli_slicing_print_all(const struct cli_slice_use *use, const weir_limit *limit, int column)
{
    for (size_t i = 0; use->slicing && i < limit->count; i++)
        cli_slicing_print(use, limit, i, column);
}

void cli_slicing_put_all(struct weir__json *json, const struct cli_slice_use *use,
                         const weir_limit *limit)
{
    if (!use->slicing)
        return;
    weir__json_open(json, "slices", '[');
    for (size_t i = 0; i < limit->count; i++)
        cli_slicing_put(json, NULL, use, limit, i);
    weir__json_close(json, ']');
}
