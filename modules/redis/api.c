/* See api.h. The first word of a context is the function that finds all others. */
#include "api.h"

#define DEFINE(name, optional, result, parameters) result(*rm_##name) parameters;
RM_FUNCTIONS(DEFINE)
#undef DEFINE

typedef int get_api(const char *name, void *ret);

const char *rm_load(RedisModuleCtx *ctx)
{
    get_api *get = *(get_api **)ctx;
    const char *missing = 0;
#define LOAD(name, optional, result, parameters)                                                   \
    if (get("RedisModule_" #name, &rm_##name) != RM_OK && !(optional))                             \
        missing = #name;
    RM_FUNCTIONS(LOAD)
#undef LOAD
    return missing;
}
