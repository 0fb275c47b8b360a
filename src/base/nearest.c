/* How many strokes apart two names are, counted row by row: the last three rows are enough. */
#include "base/nearest.h"

#include <stdbool.h>
#include <string.h>

#define WORD_MAX 32

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, removals, changes and swaps of neighbours that turn a into b; b is short. */
static int strokes(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], 1 + before[j - 2]);
        }
    }
    return rows[a_len % 3][b_len];
}

const char *weir__nearest(const char *word, size_t len, const char *const *names)
{
    const char *best = NULL;
    int nearer_than = len <= 4 ? 2 : len <= 5 ? 3 : 4;
    for (; *names && len <= WORD_MAX; names++) {
        size_t name_len = strlen(*names);
        if (name_len > WORD_MAX)
            continue;
        bool begins = len >= 2 && len < name_len && !memcmp(word, *names, len);
        int apart = begins ? 1 : strokes(word, len, *names, name_len);
        if (apart < nearer_than) {
            best = *names;
            nearer_than = apart;
        }
    }
    return best;
}
