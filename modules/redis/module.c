/* Loading: finds the API, registers the commands and tells the server about them. */
#include "weir_redis.h"

#include <assert.h>
#include <string.h>

#define MODULE_NAME "weir"
#define MODULE_VERSION 1
#define CATEGORY "weir"

static const struct rm_info_version info_version = {
    1, 2 * sizeof(char *), sizeof(struct rm_key_spec), sizeof(struct rm_argument)};

#define KEYS(key_flags, how, ...)                                                                  \
    (const struct rm_key_spec[])                                                                   \
    {                                                                                              \
        {.flags = (key_flags),                                                                     \
         .begin_search = RM_SPEC_INDEX,                                                            \
         .begin.index = {1},                                                                       \
         .find_keys = (how),                                                                       \
         __VA_ARGS__},                                                                             \
            {0},                                                                                   \
    }
#define ONE_KEY(flags) KEYS(flags, RM_SPEC_RANGE, .find.range = {0, 1, 0})
/* To be marked incomplete: Redis 7.0 forgets the step and would find the first key only, so it must
 * ask the command. */
#define COUNTED_KEYS(flags) KEYS(flags, RM_SPEC_NUMBER, .find.number = {0, 1, 3})
#define WRITES (RM_KEY_RW | RM_KEY_ACCESS | RM_KEY_UPDATE)
#define READS (RM_KEY_RO | RM_KEY_ACCESS)
#define REMOVES (RM_KEY_RM | RM_KEY_DELETE)
#define COST_NOTE "O(1); sliding limits O(entries that expired)"

/* ---- the API ---- */

#define DEFINE(name, optional, result, parameters) result(*rm_##name) parameters;
RM_FUNCTIONS(DEFINE)
#undef DEFINE

typedef int get_api(const char *name, void *ret);

/* Finds all functions: the first word of a context is the function that finds them. The name of one
 * that is missing and needed, or NULL. */
static const char *module_find_api(RedisModuleCtx *ctx)
{
    get_api *get = *(get_api **)ctx;
    const char *missing = NULL;
#define LOAD(name, optional, result, parameters)                                                   \
    if (get("RedisModule_" #name, &rm_##name) != RM_OK && !(optional))                             \
        missing = #name;
    RM_FUNCTIONS(LOAD)
#undef LOAD
    return missing;
}

/* ---- arguments, for COMMAND DOCS ---- */

#define KEY                                                                                        \
    {                                                                                              \
        .name = "key", .type = RM_ARG_KEY                                                          \
    }
#define ARGUMENT(word, kind, ...)                                                                  \
    {                                                                                              \
        .name = (word), .type = RM_ARG_##kind, .key_spec = -1, __VA_ARGS__                         \
    }
#define TEXT(word) ARGUMENT(word, STRING)
#define NUMBER(word) ARGUMENT(word, INTEGER)
#define END                                                                                        \
    {                                                                                              \
        0                                                                                          \
    }

static const struct rm_argument waits[] = {NUMBER("microseconds"),
                                           ARGUMENT("any", TOKEN, .token = "ANY"), END};
#define WAIT                                                                                       \
    ARGUMENT("wait", ONE_OF, .token = "WAIT", .summary = "The longest delay to accept",            \
             .flags = RM_ARG_OPTIONAL, .parts = waits)
#define LEAST(several)                                                                             \
    ARGUMENT("least", INTEGER, .token = "LEAST",                                                   \
             .summary = "Also take less than the cost, but not less than this",                    \
             .flags = RM_ARG_OPTIONAL | (several))
#define ACQUIRE                                                                                    \
    ARGUMENT("acquire", TOKEN, .token = "ACQUIRE", .summary = "Hold a lease of concurrent limits", \
             .flags = RM_ARG_OPTIONAL)
#define DETAIL                                                                                     \
    ARGUMENT("detail", TOKEN, .token = "DETAIL", .summary = "Reply a row for each limit, too",     \
             .flags = RM_ARG_OPTIONAL)
#define LEASE                                                                                      \
    ARGUMENT("lease", INTEGER, .token = "LEASE", .summary = "The id that the lease shall have",    \
             .flags = RM_ARG_OPTIONAL)
#define COST ARGUMENT("cost", INTEGER, .token = "COST", .flags = RM_ARG_OPTIONAL)
#define ASKS ARGUMENT("ask", BLOCK, .flags = RM_ARG_MULTIPLE, .parts = ask_arguments)
#define QUANTITY ARGUMENT("quantity", INTEGER, .flags = RM_ARG_OPTIONAL)

static const struct rm_argument take_arguments[] = {KEY,  TEXT("limits"), COST, LEAST(0),
                                                    WAIT, DETAIL,         END};
static const struct rm_argument acquire_arguments[] = {KEY,  TEXT("limits"), COST,   LEAST(0),
                                                       WAIT, LEASE,          DETAIL, END};
static const struct rm_argument ask_arguments[] = {KEY, TEXT("limits"), NUMBER("cost"), END};
static const struct rm_argument take_all_arguments[] = {
    NUMBER("numkeys"), ASKS, LEAST(RM_ARG_MULTIPLE), WAIT, ACQUIRE, LEASE, DETAIL, END};
static const struct rm_argument settle_arguments[] = {KEY, TEXT("limits"), TEXT("receipt"),
                                                      NUMBER("actual"), END};
static const struct rm_argument key_arguments[] = {KEY, END};
static const struct rm_argument lease_arguments[] = {KEY, TEXT("limits"), NUMBER("lease"), END};
static const struct rm_argument throttle_arguments[] = {
    KEY, NUMBER("max_burst"), NUMBER("count"), NUMBER("period"), QUANTITY, END};

/* ---- commands ---- */

struct command {
    enum weir__verb verb;
    rm_command *run;
    const char *flags; /* besides write or readonly, which the list of verbs has */
    int first_key;
    int arity;
    const char *summary;
    const struct rm_key_spec *key_specs;
    const struct rm_argument *arguments;
};

static bool module_describe(RedisModuleCtx *ctx, const struct command *it)
{
    RedisModuleCommand *command =
        rm_GetCommand ? rm_GetCommand(ctx, weir__verbs[it->verb].name) : NULL;
    struct rm_command_info info = {.version = &info_version,
                                   .summary = it->summary,
                                   .complexity = COST_NOTE,
                                   .since = WEIR_VERSION,
                                   .arity = it->arity,
                                   .key_specs = it->key_specs,
                                   .arguments = it->arguments};
    if (!command)
        return true;
    if (rm_SetCommandACLCategories)
        rm_SetCommandACLCategories(command, CATEGORY);
    return !rm_SetCommandInfo || rm_SetCommandInfo(command, &info) == RM_OK;
}

static bool module_add(RedisModuleCtx *ctx, const struct command *it)
{
    static const char *const kinds[] = {[WEIR__VERB_READS] = "readonly ",
                                        [WEIR__VERB_WRITES] = "write ",
                                        [WEIR__VERB_NO_KEYS] = ""};
    const struct weir__verb_facts *facts = &weir__verbs[it->verb];
    char flags[64];
    struct weir__buffer text = weir__buffer_over(flags, sizeof flags);
    weir__put_text(&text, kinds[facts->keys]);
    weir__put_text(&text, it->flags);
    assert((facts->homes & WEIR__VERB_MODULE) && !text.cut);
    return rm_CreateCommand(ctx, facts->name, it->run, flags, it->first_key, it->first_key,
                            it->first_key ? 1 : 0) == RM_OK &&
           module_describe(ctx, it);
}

static bool module_add_all(RedisModuleCtx *ctx)
{
    const struct command commands[] = {
        {WEIR__VERB_TAKE, take_command, "fast deny-oom", 1, -3,
         "Decides a request under limits and charges it if allowed", ONE_KEY(WRITES),
         take_arguments},
        {WEIR__VERB_PEEK, peek_command, "fast", 1, -3,
         "What weir.take would answer, charging nothing", ONE_KEY(READS), take_arguments},
        {WEIR__VERB_TAKEALL, take_all_command, "deny-oom getkeys-api", 0, -5,
         "Charges several keys, all or none", COUNTED_KEYS(WRITES | RM_KEY_INCOMPLETE),
         take_all_arguments},
        {WEIR__VERB_SETTLE, settle_command, "fast deny-oom", 1, 5,
         "Corrects a charge when the real cost is known", ONE_KEY(WRITES), settle_arguments},
        {WEIR__VERB_RESET, reset_command, "fast", 1, 2, "Forgets a key, all its limits",
         ONE_KEY(REMOVES), key_arguments},
        {WEIR__VERB_ACQUIRE, acquire_command, "fast deny-oom", 1, -3,
         "Takes, and holds a lease of a concurrent limit", ONE_KEY(WRITES), acquire_arguments},
        {WEIR__VERB_RENEW, renew_command, "fast deny-oom", 1, 4, "Starts a lease's time again",
         ONE_KEY(WRITES), lease_arguments},
        {WEIR__VERB_RELEASE, release_command, "fast", 1, 4, "Gives a lease's slots back",
         ONE_KEY(WRITES), lease_arguments},
        {WEIR__VERB_SHOW, show_command, "fast", 1, 2, "Describes every state that a key holds",
         ONE_KEY(READS), key_arguments},
    };
    unsigned added = 1u << WEIR__VERB_THROTTLE | 1u << WEIR__VERB_CLOCK; /* by themselves */
    for (size_t i = 0; i < WEIR__COUNT(commands); i++) {
        if (!module_add(ctx, &commands[i]))
            return false;
        added |= 1u << commands[i].verb;
    }
    for (int verb = 0; verb < WEIR__VERB_COUNT; verb++) /* the list has no more for us */
        WEIR__CHECK((added >> verb & 1) || !(weir__verbs[verb].homes & WEIR__VERB_MODULE));
    return true;
}

/* redis-cell's command, unless somebody has it already. */
static void module_add_throttle(RedisModuleCtx *ctx)
{
    const struct command throttle = {WEIR__VERB_THROTTLE,
                                     throttle_command,
                                     "fast deny-oom",
                                     1,
                                     -5,
                                     "redis-cell's command, on a token bucket",
                                     ONE_KEY(WRITES),
                                     throttle_arguments};
    if (!module_add(ctx, &throttle))
        rm_Log(ctx, "warning", "CL.THROTTLE belongs to another module: loaded without it");
}

/* Load arguments: test-clock. */
static bool module_read_arguments(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    for (int i = 0; i < argc; i++) {
        size_t len;
        const char *text = rm_StringPtrLen(argv[i], &len);
        if (len != strlen("test-clock") || memcmp(text, "test-clock", len)) {
            rm_Log(ctx, "warning", "unknown argument \"%.*s\": expected test-clock", (int)len,
                   text);
            return false;
        }
        test_clock_enabled = true;
    }
    return true;
}

static void module_fill_info(RedisModuleInfoCtx *ctx, int for_crash_report)
{
    (void)for_crash_report;
    rm_InfoAddSection(ctx, "decisions");
    rm_InfoAddFieldULongLong(ctx, "allowed", allowed_count);
    rm_InfoAddFieldULongLong(ctx, "denied", denied_count);
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(RedisModuleCtx *ctx,
                                                              RedisModuleString **argv, int argc);

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    const struct command clock = {WEIR__VERB_CLOCK,      clock_command, "fast", 0, -2,
                                  "Sets the test clock", NULL,          NULL};
    const char *missing = module_find_api(ctx);
    if (missing) {
        if (rm_Log)
            rm_Log(ctx, "warning", "this server lacks RedisModule_%s; Redis 7.0 or newer is needed",
                   missing);
        return 1;
    }
    rm_SetModuleAttribs(ctx, MODULE_NAME, MODULE_VERSION, RM_API_VERSION);
    rm_SetModuleOptions(ctx, RM_NO_IMPLICIT_SIGNAL);
    if (!module_read_arguments(ctx, argv, argc))
        return 1;
    if (rm_AddACLCategory)
        rm_AddACLCategory(ctx, CATEGORY);
    if (!module_add_all(ctx) || (test_clock_enabled && !module_add(ctx, &clock)))
        return 1;
    module_add_throttle(ctx);
    if (rm_RegisterInfoFunc && rm_InfoAddSection && rm_InfoAddFieldULongLong)
        rm_RegisterInfoFunc(ctx, module_fill_info);
    return RM_OK;
}
