/* "did you mean …": the nearest name to a mistyped one. */
#ifndef WEIR_NEAREST_H
#define WEIR_NEAREST_H

#include <stddef.h>

/* The name nearest to a mistyped word among a NULL-terminated list, or NULL if none is near. */
const char *weir__nearest(const char *word, size_t len, const char *const *names);

#endif
