/* The embedded scripts by name and kind: see scripts.h. */
#include "remote/scripts.h"

#include "wire/lua_scripts.h"

#include <assert.h>
#include <string.h>

static const struct weir__script *script_named(const char *name)
{
    for (size_t i = 0; i < WEIR__COUNT(weir__scripts); i++) {
        if (!strcmp(weir__scripts[i].name, name))
            return &weir__scripts[i];
    }
    assert(!"every script that is asked for exists");
    return NULL;
}

const struct weir__script *weir__script_general(bool test)
{
    return script_named(test ? "weir_test" : "weir");
}

const struct weir__script *weir__script_free(void)
{
    return script_named("weir_free");
}

const struct weir__script *weir__script_lean(int kind, bool test)
{
    for (size_t i = 0; i < WEIR__COUNT(weir__scripts); i++) {
        const struct weir__script *it = &weir__scripts[i];
        size_t len = strlen(it->name);
        bool is_test = len > 5 && !strcmp(it->name + len - 5, "_test");
        if (it->kind == kind && is_test == test)
            return it;
    }
    assert(!"every kind has a lean script");
    return NULL;
}

const char *weir__script_library(void)
{
    return script_named("weir_library")->text;
}

int weir__script_library_version(void)
{
    return WEIR__LIBRARY_VERSION;
}

int weir__script_library_serves(void)
{
    return WEIR__LIBRARY_SERVES;
}

const char *weir__script_sha1(const struct weir__script *script)
{
    return script->sha1;
}

const char *weir__script_arguments(const struct weir__script *script)
{
    return script->arguments;
}

const char *weir__script_text(const struct weir__script *script)
{
    return script->text;
}

void weir__script_put_function(struct weir__buffer *buffer, const struct weir__script *script)
{
    if (script->kind >= 0)
        weir__put_text(buffer, "weir_");
    weir__put_text(buffer, script->name);
}
