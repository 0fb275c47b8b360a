/* Keys that are spared: by their text, or by a network that they are in. Whether a key is one of
 * them is looked up once, when the engine meets it first. */
#include "desk/engine.h"

#include "policy/view.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct desk_spared {
    const char *text;
    bool is_network;
    struct weir__network network;
    bool used; /* a key is like this */
};

int desk_spare_make(struct desk_engine *engine)
{
    const struct desk_engine_options *options = &engine->options;
    if (options->spare_count == 0)
        return 0;
    engine->spared = calloc(options->spare_count, sizeof *engine->spared);
    for (size_t i = 0; engine->spared && i < options->spare_count; i++) {
        struct desk_spared *it = &engine->spared[i];
        it->text = options->spare[i];
        it->is_network = !weir__network_read(it->text, strlen(it->text), &it->network);
    }
    return engine->spared ? 0 : WEIR_ENOMEM;
}

bool desk_spare_has(struct desk_engine *engine, struct weir__span key)
{
    struct weir__network has;
    bool found = false;
    if (engine->options.spare_count == 0)
        return false;
    bool is_network = !weir__network_read(key.data, key.len, &has);
    for (size_t i = 0; i < engine->options.spare_count; i++) {
        struct desk_spared *it = &engine->spared[i];
        bool same = weir__span_is(key, it->text);
        if (same || (is_network && it->is_network && weir__networks_overlap(&it->network, &has)))
            found = it->used = true;
    }
    return found;
}

size_t desk_engine_unmatched(const struct desk_engine *engine)
{
    size_t i = 0;
    while (i < engine->options.spare_count && engine->spared[i].used)
        i++;
    return i;
}

void desk_spare_free(struct desk_engine *engine)
{
    free(engine->spared);
}
