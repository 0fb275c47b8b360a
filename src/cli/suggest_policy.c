/* Whether a text that `weir suggest` made is a file of policies: read as `weir check` reads it. */
#include "cli/suggest.h"

#include "policy/policy.h"

int suggest_check_policies(const char *text, size_t len, weir_error *err)
{
    struct weir__policies *set = NULL;
    int code = weir__policies_parse(text, len, "policy", false, &set, err);
    if (code == 0)
        weir__policies_free(set);
    return code;
}
