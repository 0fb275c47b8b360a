/* What nginx looks for in a file that it loads. nginx's own build writes this by itself. */
#include "ngx_http_weir.h"

extern ngx_module_t *ngx_modules[];
extern char *ngx_module_names[];
extern char *ngx_module_order[];
__attribute__((visibility("default"))) ngx_module_t *ngx_modules[] = {&ngx_http_weir_module, NULL};
__attribute__((visibility("default"))) char *ngx_module_names[] = {"ngx_http_weir_module", NULL};
__attribute__((visibility("default"))) char *ngx_module_order[] = {NULL};
