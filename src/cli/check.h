/* What `weir check` prints about a file: for people, and as JSON. `slicing` is that of the store
 * which will be used, NULL: it does not slice. */
#ifndef WEIR_CLI_CHECK_H
#define WEIR_CLI_CHECK_H

#include "cli/explain_slices.h"
#include "policy/envoy/envoy.h"
#include "policy/plan.h"
#include "policy/policy.h"

void cli_print_policies(const char *path, const struct weir__policies *set,
                        const struct weir__slicing *slicing);
void cli_print_policies_json(const char *path, const struct weir__policies *set,
                             const struct weir__slicing *slicing);
/* Whether there is a warning, or a note about an override or an attribute that looks misspelt. */
bool cli_policies_doubtful(const struct weir__policies *set);
void cli_print_envoy(const char *path, const struct weir__envoy *envoy,
                     const struct weir__slicing *slicing);
void cli_print_envoy_json(const char *path, const struct weir__envoy *envoy,
                          const struct weir__slicing *slicing);

/* ---- check_slices.c ---- */

/* How requests use a limit of a file, and how one request does by its plan. */
struct cli_slice_use cli_slice_use_of_entry(const struct weir__slicing *slicing,
                                            const struct weir__policies *set,
                                            const struct weir__policy *policy,
                                            const struct weir__entry *entry);
struct cli_slice_use cli_slice_use_of_item(const struct weir__slicing *slicing,
                                           const struct weir__plan *plan,
                                           const struct weir__item *item);
void cli_check_slices_note(const struct weir__slicing *slicing, const struct weir__policies *set);

#endif
