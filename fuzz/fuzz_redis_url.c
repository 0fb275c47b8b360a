/* Redis store addresses: refused with a message and a place that keep the password to themselves,
 * or within bounds, and the canonical spelling reads as the same. */
#include "fuzz.h"

#include "wire/url.h"

/* Stands for a password wherever the corpus has one. */
#define SECRET "hunter2"

static void check_refusal(const char *text, int code, const weir_error *err)
{
    const char *at = strrchr(text, '@');
    EXPECT(code == WEIR_EURL && err->code == code && err->message[0], "code %d", code);
    EXPECT(err->column >= 1 && (size_t)err->column <= strlen(text) + 1, "column %d of \"%s\"",
           err->column, text);
    EXPECT(!at || strstr(at, SECRET) || !strstr(err->message, SECRET), "\"%s\": %s", text,
           err->message);
    for (const char *p = err->message; *p; p++)
        EXPECT((unsigned char)*p >= ' ', "byte %d in the message", *p);
}

static void check_bounds(const struct weir__redis_url *url)
{
    EXPECT(url->host_count <= WEIR__REDIS_HOSTS_MAX &&
               (url->host_count > 0) == (url->kind != WEIR__REDIS_UNIX),
           "%u hosts", url->host_count);
    for (uint32_t i = 0; i < url->host_count; i++)
        EXPECT(url->hosts[i].name[0] && url->hosts[i].port > 0, "host %u", i);
    EXPECT((url->kind == WEIR__REDIS_UNIX) == (url->path[0] == '/'), "path \"%s\"", url->path);
    EXPECT((url->kind == WEIR__REDIS_SENTINEL) == (url->master[0] != 0), "no master");
    EXPECT(url->db >= 0 && (url->db == 0 || url->kind != WEIR__REDIS_CLUSTER), "db %d", url->db);
    EXPECT(url->deadline_us >= 1 && url->deadline_us <= WEIR_DURATION_MAX, "deadline");
    EXPECT(url->peers >= 1 && url->size >= 65536 && url->size % 4096 == 0, "peers %d", url->peers);
    EXPECT(url->tls || (!url->ca[0] && !url->cert[0] && !url->key[0] && url->verify), "no TLS");
    EXPECT(!url->cert[0] == !url->key[0], "cert without key");
    EXPECT(!url->password[0] || !url->password_file[0], "two passwords");
}

/* The same struct of the canonical spelling, the password apart. */
static void check_canonical(struct weir__redis_url *url)
{
    static char text[65536];
    static struct weir__redis_url again;
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir_error err = {0};
    weir__put_redis_url(&buffer, url);
    EXPECT(!buffer.cut, "cut");
    EXPECT(weir__redis_url_parse(text, &again, &err) == 0, "\"%s\": %s", text, err.message);
    EXPECT(!url->password[0] == !again.password[0], "\"%s\": password", text);
    memset(url->password, 0, sizeof url->password);
    memset(again.password, 0, sizeof again.password);
    EXPECT(!memcmp(url, &again, sizeof again), "\"%s\" reads as another", text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weir__redis_url url;
    char *text = fuzz_text(data, size);
    weir_error err = {0};
    int code = weir__redis_url_parse(text, &url, &err);
    EXPECT(weir__redis_url_parse(text, &(struct weir__redis_url){0}, NULL) == code, "without err");
    if (code) {
        check_refusal(text, code, &err);
    } else {
        EXPECT(weir__is_redis_url(text), "\"%s\" is not taken for what it is", text);
        check_bounds(&url);
        check_canonical(&url);
    }
    free(text);
    return 0;
}
