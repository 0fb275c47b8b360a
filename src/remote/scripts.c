/* See scripts.h. */
#include "remote/scripts.h"

#include "wire/lua_scripts.h"

#include <string.h>

#define LIBRARY "weir_library"

static bool is_test(const char *name)
{
    size_t len = strlen(name);
    return len > 5 && !strcmp(name + len - 5, "_test");
}

const struct weir__script *weir__script_find(int kind, bool test)
{
    for (size_t i = 0; i < WEIR__COUNT(weir__scripts); i++) {
        const struct weir__script *it = &weir__scripts[i];
        if (it->kind == kind && is_test(it->name) == test && strcmp(it->name, LIBRARY))
            return it;
    }
    return NULL;
}

const char *weir__script_library(void)
{
    size_t i = 0;
    while (strcmp(weir__scripts[i].name, LIBRARY))
        i++;
    return weir__scripts[i].text;
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
