/*
 * TLS for what listens: OpenSSL over the connection's own socket, TLS 1.2 and 1.3.
 *
 * What holds:
 *   1. A client is told apart by its first bytes, with or without ALPN; one that offers only protocols
 *      that nobody here speaks is refused in the handshake.
 *   2. No renegotiation, no compression; tickets are stateless, so that sessions cost no memory.
 *   3. An idle connection keeps no record buffers.
 *   4. Writing to a socket that is gone raises no signal.
 *   5. A certificate can be renewed while it serves: connections keep the one they began with.
 */
#include "server/conn.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct server_tls {
    pthread_mutex_t lock; /* for which context it is; connections have references of their own */
    SSL_CTX *context;
    BIO_METHOD *socket;
};

struct server_tls_conn {
    SSL *session;
    int fd;
    bool wants_write; /* the last reading waits for the socket to be writable */
};

/* ---- the socket, as OpenSSL sees it ---- */

static int moved(BIO *bio, ssize_t bytes)
{
    BIO_clear_retry_flags(bio);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_flags(bio, BIO_FLAGS_SHOULD_RETRY);
    return (int)bytes;
}

static int socket_read(BIO *bio, char *data, int size)
{
    const struct server_tls_conn *tls = BIO_get_data(bio);
    int got = moved(bio, recv(tls->fd, data, (size_t)size, 0));
    if (got < 0 && BIO_should_retry(bio))
        BIO_set_flags(bio, BIO_FLAGS_READ);
    return got;
}

static int socket_write(BIO *bio, const char *data, int len)
{
    const struct server_tls_conn *tls = BIO_get_data(bio);
    int sent = moved(bio, send(tls->fd, data, (size_t)len, MSG_NOSIGNAL));
    if (sent < 0 && BIO_should_retry(bio))
        BIO_set_flags(bio, BIO_FLAGS_WRITE);
    return sent;
}

static long socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_socket_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (method && BIO_meth_set_read(method, socket_read) &&
        BIO_meth_set_write(method, socket_write) && BIO_meth_set_ctrl(method, socket_control))
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* ---- certificate and key ---- */

/* OpenSSL's newest word on what went wrong. */
static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : "unknown reason";
}

/* Whether a file can be read at all: the system's reasons are clearer than OpenSSL's. */
static int open_file(const char *what, const char *option, const char *path, BIO **ret,
                     weir_error *err)
{
    errno = 0;
    BIO *file = BIO_new_file(path, "r");
    if (!file)
        return weir__fail(err, WEIR_ESYSTEM, 0, "cannot read the %s %s: %s; give another with %s",
                          what, path, errno ? strerror(errno) : reason(), option);
    *ret = file;
    return 0;
}

static int read_certificate(SSL_CTX *context, const char *path, weir_error *err)
{
    BIO *file = NULL;
    int code = open_file("certificate", "--tls-cert", path, &file, err);
    if (code)
        return code;
    BIO_free(file);
    if (SSL_CTX_use_certificate_chain_file(context, path) == 1)
        return 0;
    return weir__fail(err, WEIR_EINVAL, 0,
                      "%s is no certificate: %s; expected PEM, the server's own first, then those "
                      "that vouch for it",
                      path, reason());
}

/* Nobody is there to be asked for a passphrase. */
static int no_passphrase(char *room, int size, int writing, void *context)
{
    (void)room, (void)size, (void)writing;
    *(bool *)context = true;
    return -1;
}

static int read_key(SSL_CTX *context, const char *path, const char *cert_path, weir_error *err)
{
    BIO *file = NULL;
    int code = open_file("key", "--tls-key", path, &file, err);
    if (code)
        return code;
    bool encrypted = false;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(file, NULL, no_passphrase, &encrypted);
    BIO_free(file);
    if (encrypted)
        code = weir__fail(err, WEIR_EINVAL, 0,
                          "the key %s is encrypted; remove the passphrase (openssl pkey -in FILE "
                          "-out OTHER) and let file permissions protect it",
                          path);
    else if (!key)
        code = weir__fail(err, WEIR_EINVAL, 0, "%s is no private key: %s; expected PEM", path,
                          reason());
    else if (X509_check_private_key(SSL_CTX_get0_certificate(context), key) != 1 ||
             SSL_CTX_use_PrivateKey(context, key) != 1)
        code =
            weir__fail(err, WEIR_EINVAL, 0,
                       "the key %s is not that of the certificate %s: %s; give the pair that was "
                       "made together",
                       path, cert_path, reason());
    EVP_PKEY_free(key);
    return code;
}

/* ---- the context ---- */

static int choose_protocol(SSL *session, const unsigned char **ret, unsigned char *ret_len,
                           const unsigned char *offered, unsigned int len, void *context)
{
    static const unsigned char ours[] = "\2h2\10http/1.1";
    (void)session, (void)context;
    /* The server's order decides; the cast is the interface's, nothing is written to. */
    if (SSL_select_next_proto((unsigned char **)ret, ret_len, ours, sizeof ours - 1, offered,
                              len) == OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_OK;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static bool set_up(SSL_CTX *context)
{
    static const unsigned char name[] = "weir";
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    /* TLS 1.2 as HTTP/2 wants it (RFC 9113, 9.2.2): forward secrecy and authenticated ciphers only. */
    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1 &&
           SSL_CTX_set_session_id_context(context, name, sizeof name - 1) == 1 &&
           SSL_CTX_set_num_tickets(context, 1) == 1;
}

static int make_context(const char *cert, const char *key, SSL_CTX **ret, weir_error *err)
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    int code = 0;
    if (!context || !set_up(context))
        code = weir__fail(err, WEIR_ENOMEM, 0, "no TLS: %s", reason());
    if (code == 0)
        code = read_certificate(context, cert, err);
    if (code == 0)
        code = read_key(context, key, cert, err);
    ERR_clear_error();
    if (code)
        SSL_CTX_free(context);
    else
        *ret = context;
    return code;
}

int server_tls_create(const char *cert, const char *key, struct server_tls **ret, weir_error *err)
{
    if (!cert || !key)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "TLS needs a certificate and its key; give both --tls-cert FILE and "
                          "--tls-key FILE");
    struct server_tls *tls = calloc(1, sizeof *tls);
    if (!tls || !(tls->socket = make_socket_method())) {
        free(tls);
        return weir__fail(err, WEIR_ENOMEM, 0, "no TLS: out of memory");
    }
    pthread_mutex_init(&tls->lock, NULL);
    int code = make_context(cert, key, &tls->context, err);
    if (code) {
        server_tls_destroy(tls);
        return code;
    }
    *ret = tls;
    return 0;
}

int server_tls_renew(struct server_tls *tls, const char *cert, const char *key, weir_error *err)
{
    SSL_CTX *fresh, *old;
    int code = make_context(cert, key, &fresh, err);
    if (code)
        return code;
    pthread_mutex_lock(&tls->lock);
    old = tls->context;
    tls->context = fresh;
    pthread_mutex_unlock(&tls->lock);
    SSL_CTX_free(old);
    return 0;
}

void server_tls_destroy(struct server_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    pthread_mutex_destroy(&tls->lock);
    BIO_meth_free(tls->socket);
    free(tls);
}

/* ---- connections ---- */

static SSL *make_session(struct server_tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    SSL *session = SSL_new(tls->context);
    pthread_mutex_unlock(&tls->lock);
    return session;
}

struct server_tls_conn *server_tls_accept(struct server_tls *tls, int fd)
{
    struct server_tls_conn *conn = calloc(1, sizeof *conn);
    BIO *bio = conn ? BIO_new(tls->socket) : NULL;
    if (bio)
        conn->session = make_session(tls);
    if (!bio || !conn->session) {
        BIO_free(bio);
        free(conn);
        ERR_clear_error();
        return NULL;
    }
    conn->fd = fd;
    BIO_set_data(bio, conn);
    BIO_set_init(bio, 1);
    SSL_set_bio(conn->session, bio, bio);
    SSL_set_accept_state(conn->session);
    return conn;
}

void server_tls_free(struct server_tls_conn *tls)
{
    if (!tls)
        return;
    server_tls_say_goodbye(tls);
    SSL_free(tls->session);
    free(tls);
}

bool server_tls_is_up(const struct server_tls_conn *tls)
{
    return SSL_is_init_finished(tls->session);
}

struct weir__span server_tls_protocol(const struct server_tls_conn *tls)
{
    const unsigned char *name = NULL;
    unsigned int len = 0;
    SSL_get0_alpn_selected(tls->session, &name, &len);
    return (struct weir__span){name ? (const char *)name : "", len};
}

void server_tls_say_goodbye(struct server_tls_conn *tls)
{
    ERR_clear_error();
    if (server_tls_is_up(tls))
        SSL_shutdown(tls->session); /* once only, and if the socket takes it */
    ERR_clear_error();
}

/* What a call that moved nothing means. */
static ssize_t explain(struct server_tls_conn *tls, int result)
{
    int why = SSL_get_error(tls->session, result);
    if (why == SSL_ERROR_ZERO_RETURN)
        return 0;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    if (why != SSL_ERROR_SYSCALL || errno == 0 || errno == EAGAIN)
        errno = EPROTO;
    ERR_clear_error();
    return -1;
}

/* A record at a time, and nothing beyond it: what else there is, the socket's events tell. */
ssize_t server_tls_read(struct server_tls_conn *tls, void *data, size_t size)
{
    size_t got;
    errno = 0;
    int result = SSL_read_ex(tls->session, data, size, &got);
    tls->wants_write = result != 1 && SSL_want_write(tls->session);
    return result == 1 ? (ssize_t)got : explain(tls, result);
}

ssize_t server_tls_write(struct server_tls_conn *tls, const void *data, size_t len)
{
    size_t sent;
    errno = 0;
    int result = SSL_write_ex(tls->session, data, len, &sent);
    if (result == 1)
        return (ssize_t)sent;
    ssize_t bytes = explain(tls, result);
    if (bytes == 0) { /* the peer has said goodbye */
        errno = EPIPE;
        return -1;
    }
    return bytes;
}

bool server_tls_pending(struct server_tls_conn *tls)
{
    return SSL_pending(tls->session) > 0;
}

bool server_tls_wants_write(struct server_tls_conn *tls)
{
    return tls->wants_write;
}
