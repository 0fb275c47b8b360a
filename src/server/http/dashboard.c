/* The dashboard: files of web/, compiled in, with what keeps browsers from running anything else. */
#include "server/http/http.h"

#include <string.h>

struct web_file {
    const char *path, *type, *tag;
    const unsigned char *plain;
    size_t plain_len;
    const unsigned char *packed;
    size_t packed_len;
};

#include "server/web_files.h"

#define SECURITY                                                                                   \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "        \
    "'self'; "                                                                                     \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static void dashboard_add(struct server_response *ret, const char *name, const char *value)
{
    server_response_field(ret, name, value, strlen(value));
}

static void dashboard_serve(const struct weir__http_request *request, const struct web_file *file,
                            struct server_response *ret)
{
    struct weir__span value;
    bool known = weir__http_field(request, "if-none-match", &value) &&
                 memmem(value.data, value.len, file->tag, strlen(file->tag));
    bool packed = weir__http_field(request, "accept-encoding", &value) &&
                  memmem(value.data, value.len, "gzip", 4);
    server_response_begin(ret, known ? 304 : 200);
    dashboard_add(ret, "etag", file->tag);
    dashboard_add(ret, "cache-control", "no-cache");
    dashboard_add(ret, "vary", "accept-encoding");
    if (known)
        return;
    dashboard_add(ret, "content-type", file->type);
    dashboard_add(ret, "content-security-policy", SECURITY);
    dashboard_add(ret, "x-content-type-options", "nosniff");
    dashboard_add(ret, "referrer-policy", "no-referrer");
    if (packed)
        dashboard_add(ret, "content-encoding", "gzip");
    ret->body = packed ? (struct weir__span){(const char *)file->packed, file->packed_len}
                       : (struct weir__span){(const char *)file->plain, file->plain_len};
}

bool server_dashboard(const struct weir__http_request *request, struct server_response *ret)
{
    for (size_t i = 0; i < WEIR__COUNT(web_files); i++) {
        if (!weir__span_is(request->path, web_files[i].path))
            continue;
        if (request->method == WEIR__HTTP_GET || request->method == WEIR__HTTP_HEAD) {
            dashboard_serve(request, &web_files[i], ret);
        } else {
            server_response_problem(ret, 405, "this path answers GET, HEAD");
            dashboard_add(ret, "allow", "GET, HEAD");
        }
        return true;
    }
    return false;
}
