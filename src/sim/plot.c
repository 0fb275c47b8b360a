/* Drawing a plot: see plot.h. Heights are counted in eighths of a character. */
#include "sim/plot.h"

#define THROUGH_COLOUR "32"
#define DENIED_COLOUR "38;5;88"
#define DENIED_GROUND "48;5;88"
#define SHADE "░"

static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

enum ink { NO_INK, THROUGH, DENIED, BOTH };

static const char *const inks[] = {
    [NO_INK] = "\033[0m",
    [THROUGH] = "\033[0;" THROUGH_COLOUR "m",
    [DENIED] = "\033[0;" DENIED_COLOUR "m",
    [BOTH] = "\033[0;" THROUGH_COLOUR ";" DENIED_GROUND "m",
};

struct cell {
    const char *glyph;
    enum ink ink;
};

size_t weir__plot_width(const struct weir__plot *plot)
{
    return plot->timeline->count * plot->bar_width;
}

/* An amount above zero is always visible: at least one eighth. */
static int64_t plot_eighths(const struct weir__plot *plot, int64_t amount)
{
    int64_t full = plot->rows * 8;
    int64_t height = (int64_t)(((__int128)amount * full + plot->scale / 2) / plot->scale);
    return weir__min(full, amount > 0 ? weir__max(1, height) : 0);
}

/* Of a height, the eighths that fall into the row whose lower edge is at `floor`. */
static int64_t plot_part(int64_t height, int64_t floor)
{
    return weir__max(0, weir__min(8, height - floor));
}

static struct cell plot_coloured(int64_t through, int64_t all)
{
    if (all == 0)
        return (struct cell){" ", NO_INK};
    if (through == all)
        return (struct cell){blocks[through], THROUGH};
    if (through == 0)
        return (struct cell){blocks[all], DENIED};
    if (all == 8)
        return (struct cell){blocks[through], BOTH};
    /* One character can have two colours, not three: the larger part wins. */
    return all - through > through ? (struct cell){blocks[all], DENIED}
                                   : (struct cell){blocks[through], THROUGH};
}

static struct cell plot_shaded(int64_t through, int64_t all)
{
    if (all == 0)
        return (struct cell){" ", NO_INK};
    if (through == all || through >= 4)
        return (struct cell){blocks[through], NO_INK};
    return (struct cell){SHADE, NO_INK};
}

void weir__plot_row(struct weir__buffer *buffer, const struct weir__plot *plot, int row)
{
    assert(row >= 0 && row < plot->rows && plot->scale > 0);
    int64_t floor = (plot->rows - 1 - row) * 8;
    enum ink ink = NO_INK;
    for (size_t i = 0; i < plot->timeline->count; i++) {
        const struct weir__bin *bin = &plot->timeline->bins[i];
        int64_t through = plot_part(plot_eighths(plot, bin->through), floor);
        int64_t all = plot_part(plot_eighths(plot, bin->through + bin->denied), floor);
        struct cell cell = plot->colour ? plot_coloured(through, all) : plot_shaded(through, all);
        if (cell.ink != ink)
            weir__put_text(buffer, inks[cell.ink]);
        ink = cell.ink;
        for (size_t j = 0; j < plot->bar_width; j++)
            weir__put_text(buffer, cell.glyph);
    }
    if (ink != NO_INK)
        weir__put_text(buffer, inks[NO_INK]);
}

void weir__plot_sample(struct weir__buffer *buffer, bool colour, bool denied)
{
    if (colour)
        weir__put_format(buffer, "%s█%s", inks[denied ? DENIED : THROUGH], inks[NO_INK]);
    else
        weir__put_text(buffer, denied ? SHADE : "█");
}
