/*
 * TLS through OpenSSL 3 or 1.1, loaded by dlopen when the first rediss:// address is used: the
 * library itself depends on libc alone. There are no sockets in it: bytes go in and out through
 * memory, so that writing never raises SIGPIPE. One mutex per session: a thread that reads and one
 * that writes may meet.
 */
#include "remote/net.h"

#include <arpa/inet.h>
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- OpenSSL, as far as it is used; types and numbers of its stable interface ---- */

typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_st SSL;
typedef struct bio_st BIO;
typedef struct x509_vpm_st X509_PARAM;

enum {
    SSL_WANT_READ = 2,
    SSL_WANT_WRITE = 3,
    SSL_CTRL_SNI = 55,
    SSL_CTRL_MIN_VERSION = 123,
    SSL_TLS1_2 = 0x0303,
    SSL_SNI_HOST = 0,
    SSL_VERIFY_NOTHING = 0,
    SSL_VERIFY_SERVER = 1,
    SSL_PEM = 1,
    SSL_VERIFIED = 0,
};

/* Each function: what it returns, its name, what it takes. */
#define FUNCTIONS(X)                                                                               \
    X(const void *, TLS_client_method, (void))                                                     \
    X(SSL_CTX *, SSL_CTX_new, (const void *))                                                      \
    X(void, SSL_CTX_free, (SSL_CTX *))                                                             \
    X(long, SSL_CTX_ctrl, (SSL_CTX *, int, long, void *))                                          \
    X(void, SSL_CTX_set_verify, (SSL_CTX *, int, void *))                                          \
    X(int, SSL_CTX_set_default_verify_paths, (SSL_CTX *))                                          \
    X(int, SSL_CTX_load_verify_locations, (SSL_CTX *, const char *, const char *))                 \
    X(int, SSL_CTX_use_certificate_chain_file, (SSL_CTX *, const char *))                          \
    X(int, SSL_CTX_use_PrivateKey_file, (SSL_CTX *, const char *, int))                            \
    X(int, SSL_CTX_check_private_key, (const SSL_CTX *))                                           \
    X(SSL *, SSL_new, (SSL_CTX *))                                                                 \
    X(void, SSL_free, (SSL *))                                                                     \
    X(long, SSL_ctrl, (SSL *, int, long, void *))                                                  \
    X(int, SSL_set1_host, (SSL *, const char *))                                                   \
    X(X509_PARAM *, SSL_get0_param, (SSL *))                                                       \
    X(int, X509_VERIFY_PARAM_set1_ip_asc, (X509_PARAM *, const char *))                            \
    X(void, SSL_set_bio, (SSL *, BIO *, BIO *))                                                    \
    X(void, SSL_set_connect_state, (SSL *))                                                        \
    X(int, SSL_do_handshake, (SSL *))                                                              \
    X(int, SSL_read, (SSL *, void *, int))                                                         \
    X(int, SSL_write, (SSL *, const void *, int))                                                  \
    X(int, SSL_get_error, (const SSL *, int))                                                      \
    X(long, SSL_get_verify_result, (const SSL *))                                                  \
    X(const char *, X509_verify_cert_error_string, (long))                                         \
    X(const void *, BIO_s_mem, (void))                                                             \
    X(BIO *, BIO_new, (const void *))                                                              \
    X(int, BIO_read, (BIO *, void *, int))                                                         \
    X(int, BIO_write, (BIO *, const void *, int))                                                  \
    X(unsigned long, ERR_get_error, (void))                                                        \
    X(void, ERR_clear_error, (void))                                                               \
    X(void, ERR_error_string_n, (unsigned long, char *, size_t))

static struct {
#define MEMBER(result, name, arguments) result(*name) arguments;
    FUNCTIONS(MEMBER)
#undef MEMBER
} openssl;

static const char *tls_missing; /* NULL: everything was found */
static pthread_once_t tls_once = PTHREAD_ONCE_INIT;

/* It stays loaded: OpenSSL leaves handlers behind. */
static void tls_find_openssl(void)
{
    static const char *const names[] = {"libssl.so.3", "libssl.so.1.1"};
    void *library = NULL;
    for (size_t i = 0; i < WEIR__COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        tls_missing = "libssl.so.3 (OpenSSL)";
        return;
    }
#define FIND(result, name, arguments)                                                              \
    *(void **)&openssl.name = dlsym(library, #name);                                               \
    if (!openssl.name)                                                                             \
        tls_missing = #name;
    FUNCTIONS(FIND)
#undef FIND
}

/* ---- sessions ---- */

#define RECORD 16384      /* the most plain bytes of a TLS record */
#define CIPHER_ROOM 17408 /* such a record enciphered, and some */

struct weir__tls {
    pthread_mutex_t lock;
    SSL_CTX *context;
    SSL *session;
    BIO *in, *out;
    size_t held_at, held_len; /* enciphered bytes that the socket did not take yet */
    char held[CIPHER_ROOM];
};

/* Says what is wrong with what; false. */
static bool tls_describe(char why[WEIR__WHY_SIZE], const char *what, const char *about)
{
    char text[160] = "refused";
    unsigned long code = openssl.ERR_get_error();
    if (code)
        openssl.ERR_error_string_n(code, text, sizeof text);
    snprintf(why, WEIR__WHY_SIZE, "TLS: %s %.60s: %s", what, about, text);
    openssl.ERR_clear_error();
    return false;
}

static bool tls_set_certificates(SSL_CTX *context, const struct weir__redis_url *url,
                                 char why[WEIR__WHY_SIZE])
{
    bool found = url->ca[0] ? openssl.SSL_CTX_load_verify_locations(context, url->ca, NULL) == 1
                            : openssl.SSL_CTX_set_default_verify_paths(context) == 1;
    if (!found)
        return tls_describe(why, "the authorities of", url->ca[0] ? url->ca : "this system");
    if (!url->cert[0])
        return true;
    if (openssl.SSL_CTX_use_certificate_chain_file(context, url->cert) != 1)
        return tls_describe(why, "the certificate", url->cert);
    if (openssl.SSL_CTX_use_PrivateKey_file(context, url->key, SSL_PEM) != 1 ||
        openssl.SSL_CTX_check_private_key(context) != 1)
        return tls_describe(why, "the key", url->key);
    return true;
}

/* For whom the certificate must be made. Addresses have no SNI. */
static bool tls_set_host(SSL *session, const char *host)
{
    struct in6_addr address;
    if (inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1)
        return openssl.X509_VERIFY_PARAM_set1_ip_asc(openssl.SSL_get0_param(session), host) == 1;
    char name[256];
    snprintf(name, sizeof name, "%s", host);
    return openssl.SSL_set1_host(session, host) == 1 &&
           openssl.SSL_ctrl(session, SSL_CTRL_SNI, SSL_SNI_HOST, name) == 1;
}

static bool tls_make_session(struct weir__tls *tls, const struct weir__redis_url *url,
                             const char *host, char why[WEIR__WHY_SIZE])
{
    tls->context = openssl.SSL_CTX_new(openssl.TLS_client_method());
    if (!tls->context || !tls_set_certificates(tls->context, url, why))
        return false;
    openssl.SSL_CTX_ctrl(tls->context, SSL_CTRL_MIN_VERSION, SSL_TLS1_2, NULL);
    openssl.SSL_CTX_set_verify(tls->context, url->verify ? SSL_VERIFY_SERVER : SSL_VERIFY_NOTHING,
                               NULL);
    tls->session = openssl.SSL_new(tls->context);
    if (!tls->session || !tls_set_host(tls->session, host))
        return tls_describe(why, "the host", host);
    tls->in = openssl.BIO_new(openssl.BIO_s_mem());
    tls->out = openssl.BIO_new(openssl.BIO_s_mem());
    if (!tls->in || !tls->out)
        return false; /* out of memory; what was made is lost */
    openssl.SSL_set_bio(tls->session, tls->in, tls->out);
    openssl.SSL_set_connect_state(tls->session);
    return true;
}

struct weir__tls *weir__tls_new(const struct weir__redis_url *url, const char *host,
                                char why[WEIR__WHY_SIZE])
{
    pthread_once(&tls_once, tls_find_openssl);
    if (tls_missing) {
        snprintf(why, WEIR__WHY_SIZE, "TLS: %s was not found; install OpenSSL 3 (libssl3)",
                 tls_missing);
        return NULL;
    }
    struct weir__tls *tls = calloc(1, sizeof *tls);
    if (!tls) {
        snprintf(why, WEIR__WHY_SIZE, "TLS: out of memory");
        return NULL;
    }
    pthread_mutex_init(&tls->lock, NULL);
    snprintf(why, WEIR__WHY_SIZE, "TLS: out of memory");
    if (tls_make_session(tls, url, host, why))
        return tls;
    weir__tls_free(tls);
    return NULL;
}

void weir__tls_free(struct weir__tls *tls)
{
    if (!tls)
        return;
    if (tls->session)
        openssl.SSL_free(tls->session);
    if (tls->context)
        openssl.SSL_CTX_free(tls->context);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

/* ---- bytes between socket and session; the lock is held ---- */

/* Moves enciphered bytes to the socket; false: it is broken. What it does not take is held. */
static bool tls_push(struct weir__tls *tls, int fd)
{
    assert(tls->held_at <= tls->held_len && tls->held_len <= sizeof tls->held);
    for (;;) {
        if (tls->held_at == tls->held_len) {
            int n = openssl.BIO_read(tls->out, tls->held, sizeof tls->held);
            if (n <= 0)
                return true;
            tls->held_at = 0;
            tls->held_len = (size_t)n;
        }
        ssize_t n = send(fd, tls->held + tls->held_at, tls->held_len - tls->held_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        tls->held_at += (size_t)n;
    }
}

/* Moves bytes from the socket to the session. 1: some; 0: none now; -1: closed or broken. */
static int tls_pull(struct weir__tls *tls, int fd)
{
    char data[CIPHER_ROOM];
    ssize_t n;
    do
        n = recv(fd, data, sizeof data, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    return n > 0 && openssl.BIO_write(tls->in, data, (int)n) == (int)n ? 1 : -1;
}

/* Why there was no handshake; what weir__tls_handshake answers. */
static int tls_explain(struct weir__tls *tls, char why[WEIR__WHY_SIZE])
{
    long result = openssl.SSL_get_verify_result(tls->session);
    if (result == SSL_VERIFIED) {
        tls_describe(why, "handshake with", "the server");
        return -1;
    }
    snprintf(why, WEIR__WHY_SIZE, "TLS: the server's certificate: %s (ca= names the authority)",
             openssl.X509_verify_cert_error_string(result));
    return -2;
}

int weir__tls_handshake(struct weir__tls *tls, int fd, short *ret_events, char why[WEIR__WHY_SIZE])
{
    for (;;) {
        openssl.ERR_clear_error();
        int done = openssl.SSL_do_handshake(tls->session);
        int error = done == 1 ? 0 : openssl.SSL_get_error(tls->session, done);
        if (done != 1 && error != SSL_WANT_READ && error != SSL_WANT_WRITE) {
            tls_push(tls, fd); /* the alert that says so */
            return tls_explain(tls, why);
        }
        if (!tls_push(tls, fd)) {
            snprintf(why, WEIR__WHY_SIZE, "TLS: the connection was closed");
            return -1;
        }
        if (done == 1)
            return 1;
        int came = tls_pull(tls, fd);
        if (came > 0)
            continue;
        *ret_events = weir__tls_holds(tls) ? POLLIN | POLLOUT : POLLIN;
        if (came < 0)
            snprintf(why, WEIR__WHY_SIZE,
                     "TLS: the server closed the connection; does it speak TLS?");
        return came;
    }
}

long weir__tls_read(struct weir__tls *tls, int fd, void *data, size_t room)
{
    long result = 0;
    pthread_mutex_lock(&tls->lock);
    for (;;) {
        openssl.ERR_clear_error();
        int n = openssl.SSL_read(tls->session, data, (int)(room > RECORD ? RECORD : room));
        bool wants = n <= 0 && openssl.SSL_get_error(tls->session, n) == SSL_WANT_READ;
        if (!tls_push(tls, fd) || (n <= 0 && !wants)) /* reading may have to write, to renew keys */
            result = -1;
        else if (n > 0)
            result = n;
        else if ((result = tls_pull(tls, fd)) > 0)
            continue;
        break;
    }
    pthread_mutex_unlock(&tls->lock);
    return result;
}

long weir__tls_write(struct weir__tls *tls, int fd, const void *data, size_t len)
{
    long result = 0;
    pthread_mutex_lock(&tls->lock);
    if (!tls_push(tls, fd)) {
        result = -1;
    } else if (tls->held_at == tls->held_len && len > 0) {
        openssl.ERR_clear_error();
        int n = openssl.SSL_write(tls->session, data, (int)(len > RECORD ? RECORD : len));
        result = n > 0 && tls_push(tls, fd) ? n : -1;
    }
    pthread_mutex_unlock(&tls->lock);
    return result;
}

bool weir__tls_holds(struct weir__tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    bool holds = tls->held_at < tls->held_len;
    pthread_mutex_unlock(&tls->lock);
    return holds;
}
