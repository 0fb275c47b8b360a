/* "did you mean …": the nearest name to a mistyped one. */
#include "cli/cli.h"

#include <string.h>

#define NAME_MAX_LEN 32

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, removals, changes and swaps of neighbours that turn a into b; both are short. */
static int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int rows[NAME_MAX_LEN + 1][NAME_MAX_LEN + 1];
    for (size_t i = 0; i <= a_len; i++) {
        for (size_t j = 0; j <= b_len; j++) {
            if (i == 0 || j == 0) {
                rows[i][j] = (int)(i + j);
                continue;
            }
            int changed = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            rows[i][j] = least(changed, 1 + least(rows[i - 1][j], rows[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                rows[i][j] = least(rows[i][j], 1 + rows[i - 2][j - 2]);
        }
    }
    return rows[a_len][b_len];
}

const char *cli_nearest(const char *word, const char *const *names, size_t count)
{
    size_t len = strlen(word);
    const char *best = NULL;
    int best_distance = len <= 4 ? 2 : 3; /* only what is nearer than this */
    for (size_t i = 0; i < count && len <= NAME_MAX_LEN; i++) {
        size_t name_len = strlen(names[i]);
        if (name_len > NAME_MAX_LEN)
            continue;
        int d = distance(word, len, names[i], name_len);
        bool begins = len >= 2 && len < name_len && !strncmp(word, names[i], len);
        if (begins)
            d = least(d, 1);
        if (d < best_distance) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}
