/*
 * One spelling for what has many: paths and host names are compared, and put into keys, as most servers
 * behind would understand them, so that /%6cogin, //login and /x/../login are /login.
 */
#ifndef WEIR_NORMAL_H
#define WEIR_NORMAL_H

#include "base/span.h"

/* Without query and fragment, %XX decoded once, // made /, dot segments resolved. The answer is a part of
 * the text, or written to room; false: there is not enough of it. */
bool weir__normal_path(struct weir__span text, char *room, size_t size, struct weir__span *ret);
/* In lower case, without port and closing dot. Likewise. */
bool weir__normal_host(struct weir__span text, char *room, size_t size, struct weir__span *ret);
/* In lower case (ASCII). Likewise. */
bool weir__normal_lower(struct weir__span text, char *room, size_t size, struct weir__span *ret);
/* Whether normal_path may give that text or one that a pattern of it matches; else what is wrong. */
const char *weir__normal_path_pattern(const char *text, size_t len);

#endif
