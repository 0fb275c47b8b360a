/*
 * One spelling for what has many: paths are compared, and put into keys, as most servers behind
 * would understand them, so that /%6cogin, //login, /x/../login and /login;a=b are /login.
 */
#ifndef WEIR_PATH_H
#define WEIR_PATH_H

#include "base/span.h"

#include <stdbool.h>

/* Of an absolute URI its path; without query and fragment, %XX decoded once, // made /, dot
 * segments resolved, blanks around a segment and dots at its end dropped, and what follows a ; in a
 * segment unless `parameters` are kept. It begins with /, always. The answer is a part of the text,
 * or written to room. NULL, or what is wrong: there is not enough room, or a control character. */
const char *weir__normal_path(struct weir__span text, bool parameters, char *room, size_t size,
                              struct weir__span *ret);
/* NULL, or why no path in its one spelling matches this pattern. Where ret_right is not empty then,
 * it is the right spelling; room has len + 1 bytes for it. */
const char *weir__normal_path_pattern(struct weir__span text, bool parameters, char *room,
                                      struct weir__span *ret_right);

#endif
