/* Opens the store it is given, and closes it; says why not. For tools/portable.sh. */
#include "weir.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    weir_store *store = NULL;
    weir_error err = {0};
    if (argc != 2)
        return 2;
    if (weir_store_open(argv[1], &store, &err)) {
        printf("%s\n", err.message);
        return 1;
    }
    weir_store_close(store);
    return 0;
}
