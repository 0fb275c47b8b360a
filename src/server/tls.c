/*
 * TLS for what listens: OpenSSL over the connection's own socket, TLS 1.2 and 1.3.
 *
 * What holds:
 *   1. A client is told apart by its first bytes, with or without ALPN; one that offers only
 *      protocols that nobody here speaks is refused in the handshake.
 *   2. No renegotiation, no compression; tickets are stateless, so that sessions cost no memory.
 *   3. An idle connection keeps no record buffers.
 *   4. Writing to a socket that is gone raises no signal.
 *   5. A certificate can be renewed while it serves: connections keep the one they began with.
 *   6. Where clients must have certificates, nobody is read from before his is verified.
 *   7. A handshake keeps little: OpenSSL makes room for a whole message of up to 128 KiB as soon as
 *      it knows the length, so that is looked at first.
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
#include <time.h>

#define HELLO_MAX ((uint32_t)16 << 10) /* of a ClientHello; usual ones have 2 KiB at most */
#define CHAIN_MAX (48L << 10)          /* of a client's certificates */

struct server_tls {
    pthread_mutex_t lock; /* for which context it is; connections have references of their own */
    struct server_tls_context *now;
    BIO_METHOD *socket;
};

/* Certificate, key and whom to trust, as read at one moment. */
struct server_tls_context {
    SSL_CTX *context;
    int64_t expires; /* the first of the certificates, in seconds since the epoch; 0: unknown */
};

/* What a client says before anything is encrypted, followed as far as the lengths of its
 * messages. */
struct tls_hello {
    unsigned char record[5], message[4]; /* heads; so many bytes of them are there */
    uint8_t record_len, message_len;
    uint32_t record_left, message_left;
    bool over; /* what comes now is encrypted */
};

struct server_tls_conn {
    SSL *session;
    int fd;
    struct tls_hello hello;
    bool wants_write; /* the last reading waits for the socket to be writable */
};

/* ---- how a handshake begins ---- */

/* A record's head is whole. A client that has to say hello twice (TLS 1.3) may change its cipher in
 * between, as a matter of form; before TLS 1.3 that is where encryption begins. */
static void tls_hello_record(struct server_tls_conn *tls)
{
    struct tls_hello *hello = &tls->hello;
    unsigned char type = hello->record[0];
    hello->record_len = 0;
    hello->record_left = (uint32_t)hello->record[3] << 8 | hello->record[4];
    hello->over =
        type == SSL3_RT_APPLICATION_DATA ||
        (type == SSL3_RT_CHANGE_CIPHER_SPEC && SSL_version(tls->session) < TLS1_3_VERSION) ||
        type & 0x80; /* a hello as before SSL 3, which is short */
}

/* A message's head is whole: false if it is a hello of a length that none has. */
static bool tls_hello_message(struct tls_hello *hello)
{
    const unsigned char *head = hello->message;
    hello->message_len = 0;
    hello->message_left = (uint32_t)head[1] << 16 | (uint32_t)head[2] << 8 | head[3];
    return head[0] != SSL3_MT_CLIENT_HELLO || hello->message_left <= HELLO_MAX;
}

/* Follows what has come. Records may cut messages anywhere. */
static bool tls_hello_fits(struct server_tls_conn *tls, const unsigned char *data, size_t len)
{
    struct tls_hello *hello = &tls->hello;
    for (size_t n; len > 0 && !hello->over; data += n, len -= n) {
        n = 1;
        if (hello->record_left == 0) {
            hello->record[hello->record_len++] = *data;
            if (hello->record_len == sizeof hello->record)
                tls_hello_record(tls);
            continue;
        }
        bool skips = hello->record[0] != SSL3_RT_HANDSHAKE;
        if (skips || hello->message_left > 0) {
            n = len < hello->record_left ? len : hello->record_left;
            if (!skips && n > hello->message_left)
                n = hello->message_left;
            hello->message_left -= skips ? 0 : (uint32_t)n;
        } else {
            hello->message[hello->message_len++] = *data;
            if (hello->message_len == sizeof hello->message && !tls_hello_message(hello))
                return false;
        }
        hello->record_left -= (uint32_t)n;
    }
    return true;
}

/* ---- the socket, as OpenSSL sees it ---- */

static int tls_moved(BIO *bio, ssize_t bytes)
{
    BIO_clear_retry_flags(bio);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_flags(bio, BIO_FLAGS_SHOULD_RETRY);
    return (int)bytes;
}

static int tls_socket_read(BIO *bio, char *data, int size)
{
    struct server_tls_conn *tls = BIO_get_data(bio);
    int got = tls_moved(bio, recv(tls->fd, data, (size_t)size, 0));
    if (got < 0 && BIO_should_retry(bio))
        BIO_set_flags(bio, BIO_FLAGS_READ);
    if (got > 0 && !tls_hello_fits(tls, (const unsigned char *)data, (size_t)got)) {
        errno = EPROTO;
        return -1;
    }
    return got;
}

static int tls_socket_write(BIO *bio, const char *data, int len)
{
    const struct server_tls_conn *tls = BIO_get_data(bio);
    int sent = tls_moved(bio, send(tls->fd, data, (size_t)len, MSG_NOSIGNAL));
    if (sent < 0 && BIO_should_retry(bio))
        BIO_set_flags(bio, BIO_FLAGS_WRITE);
    return sent;
}

static long tls_socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *tls_make_socket_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (method && BIO_meth_set_read(method, tls_socket_read) &&
        BIO_meth_set_write(method, tls_socket_write) &&
        BIO_meth_set_ctrl(method, tls_socket_control))
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* ---- certificate and key ---- */

/* OpenSSL's newest word on what went wrong. */
static const char *tls_reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : "unknown reason";
}

/* A file's text, in memory: a FIFO or a device must not hold anybody up. */
static int tls_open_file(const char *what, const char *option, const char *path, char **ret_text,
                         BIO **ret, weir_error *err)
{
    size_t len = 0;
    weir_error why;
    int code = server_rules_read_file(path, ret_text, &len, &why);
    if (code)
        return weir__fail(err, code, 0, "the %s: %.300s; give another with %s", what, why.message,
                          option);
    *ret = BIO_new_mem_buf(*ret_text, (int)len);
    if (*ret)
        return 0;
    free(*ret_text);
    return weir__fail(err, WEIR_ENOMEM, 0, "no TLS: out of memory");
}

static void tls_note_expiry(struct server_tls_context *ret, const X509 *certificate)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm) != 1)
        return;
    int64_t at = (int64_t)timegm(&tm);
    ret->expires = ret->expires == 0 ? at : weir__min(ret->expires, at);
}

/* The server's own, then those that vouch for it. */
static bool tls_use_chain(struct server_tls_context *ret, BIO *file)
{
    X509 *own = PEM_read_bio_X509_AUX(file, NULL, NULL, NULL), *next;
    bool fine = own && SSL_CTX_use_certificate(ret->context, own) == 1;
    if (fine)
        tls_note_expiry(ret, own);
    X509_free(own);
    while (fine && (next = PEM_read_bio_X509(file, NULL, NULL, NULL))) {
        tls_note_expiry(ret, next);
        fine = SSL_CTX_add0_chain_cert(ret->context, next) == 1;
        if (!fine)
            X509_free(next);
    }
    return fine && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE; /* the end */
}

static int tls_read_certificate(struct server_tls_context *ret, const char *path, weir_error *err)
{
    BIO *file = NULL;
    char *text = NULL;
    int code = tls_open_file("certificate", "--tls-cert", path, &text, &file, err);
    if (code)
        return code;
    if (!tls_use_chain(ret, file))
        code = weir__fail(err, WEIR_EINVAL, 0,
                          "%s is not a certificate: %s; expected PEM, the certificate of the "
                          "server first, then those of its authorities",
                          path, tls_reason());
    BIO_free(file);
    free(text);
    ERR_clear_error();
    return code;
}

/* ---- clients' certificates ---- */

/* Every certificate of the file vouches for clients; its name is told to them. */
static bool tls_trust_all(SSL_CTX *context, BIO *file)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    X509 *next;
    size_t found = 0;
    bool fine = true;
    while (fine && (next = PEM_read_bio_X509(file, NULL, NULL, NULL))) {
        fine = X509_STORE_add_cert(store, next) == 1 && SSL_CTX_add_client_CA(context, next) == 1;
        X509_free(next);
        found += fine;
    }
    return fine && found > 0 && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
}

/* Only who has a certificate by one of these gets through the handshake. */
static int tls_read_client_ca(SSL_CTX *context, const char *path, weir_error *err)
{
    BIO *file = NULL;
    char *text = NULL;
    int code = tls_open_file("certificates that vouch for clients", "--tls-client-ca", path, &text,
                             &file, err);
    if (code)
        return code;
    if (!tls_trust_all(context, file))
        code = weir__fail(err, WEIR_EINVAL, 0,
                          "%s has no certificates: %s; expected PEM, the authorities that sign the "
                          "certificates of clients",
                          path, tls_reason());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    BIO_free(file);
    free(text);
    ERR_clear_error();
    return code;
}

/* Nobody is there to be asked for a passphrase. */
static int tls_no_passphrase(char *room, int size, int writing, void *context)
{
    (void)room, (void)size, (void)writing;
    *(bool *)context = true;
    return -1;
}

static int tls_read_key(SSL_CTX *context, const char *path, const char *cert_path, weir_error *err)
{
    BIO *file = NULL;
    char *text = NULL;
    int code = tls_open_file("key", "--tls-key", path, &text, &file, err);
    if (code)
        return code;
    bool encrypted = false;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(file, NULL, tls_no_passphrase, &encrypted);
    BIO_free(file);
    free(text);
    if (encrypted)
        code = weir__fail(err, WEIR_EINVAL, 0,
                          "the key %s is encrypted; remove the passphrase (openssl pkey -in FILE "
                          "-out OTHER) and let file permissions protect it",
                          path);
    else if (!key)
        code = weir__fail(err, WEIR_EINVAL, 0, "%s is not a private key: %s; expected PEM", path,
                          tls_reason());
    else if (X509_check_private_key(SSL_CTX_get0_certificate(context), key) != 1 ||
             SSL_CTX_use_PrivateKey(context, key) != 1)
        code =
            weir__fail(err, WEIR_EINVAL, 0,
                       "the key %s is not that of the certificate %s: %s; give the pair that was "
                       "made together",
                       path, cert_path, tls_reason());
    EVP_PKEY_free(key);
    return code;
}

/* ---- the context ---- */

static int tls_choose_protocol(SSL *session, const unsigned char **ret, unsigned char *ret_len,
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

static bool tls_set_up(SSL_CTX *context)
{
    static const unsigned char name[] = "weir";
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(context, CHAIN_MAX);
    SSL_CTX_set_alpn_select_cb(context, tls_choose_protocol, NULL);
    /* TLS 1.2 as HTTP/2 wants it (RFC 9113, 9.2.2): forward secrecy and authenticated ciphers
     * only. */
    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1 &&
           SSL_CTX_set_session_id_context(context, name, sizeof name - 1) == 1 &&
           SSL_CTX_set_num_tickets(context, 1) == 1;
}

int server_tls_read_files(const struct server_config *config, struct server_tls_context **ret,
                          weir_error *err)
{
    struct server_tls_context *fresh = calloc(1, sizeof *fresh);
    int code = 0;
    ERR_clear_error();
    if (!fresh || !(fresh->context = SSL_CTX_new(TLS_server_method())) ||
        !tls_set_up(fresh->context))
        code = weir__fail(err, WEIR_ENOMEM, 0, "no TLS: %s", tls_reason());
    if (code == 0)
        code = tls_read_certificate(fresh, config->tls_cert, err);
    if (code == 0)
        code = tls_read_key(fresh->context, config->tls_key, config->tls_cert, err);
    if (code == 0 && config->tls_client_ca)
        code = tls_read_client_ca(fresh->context, config->tls_client_ca, err);
    ERR_clear_error();
    if (code)
        server_tls_context_free(fresh);
    else
        *ret = fresh;
    return code;
}

void server_tls_context_free(struct server_tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->context);
    free(context);
}

int server_tls_create(const struct server_config *config, struct server_tls **ret, weir_error *err)
{
    if (!config->tls_cert || !config->tls_key)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "TLS needs a certificate and its key; give both --tls-cert FILE and "
                          "--tls-key FILE");
    struct server_tls *tls = calloc(1, sizeof *tls);
    if (!tls || !(tls->socket = tls_make_socket_method())) {
        free(tls);
        return weir__fail(err, WEIR_ENOMEM, 0, "no TLS: out of memory");
    }
    pthread_mutex_init(&tls->lock, NULL);
    int code = server_tls_read_files(config, &tls->now, err);
    if (code) {
        server_tls_destroy(tls);
        return code;
    }
    *ret = tls;
    return 0;
}

void server_tls_use(struct server_tls *tls, struct server_tls_context *fresh)
{
    pthread_mutex_lock(&tls->lock);
    struct server_tls_context *old = tls->now;
    tls->now = fresh;
    pthread_mutex_unlock(&tls->lock);
    server_tls_context_free(old);
}

int64_t server_tls_expires(struct server_tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    int64_t expires = tls->now->expires;
    pthread_mutex_unlock(&tls->lock);
    return expires;
}

void server_tls_destroy(struct server_tls *tls)
{
    if (!tls)
        return;
    server_tls_context_free(tls->now);
    pthread_mutex_destroy(&tls->lock);
    BIO_meth_free(tls->socket);
    free(tls);
}

/* ---- connections ---- */

static SSL *tls_make_session(struct server_tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    SSL *session = SSL_new(tls->now->context);
    pthread_mutex_unlock(&tls->lock);
    return session;
}

struct server_tls_conn *server_tls_accept(struct server_tls *tls, int fd)
{
    struct server_tls_conn *conn = calloc(1, sizeof *conn);
    BIO *bio = conn ? BIO_new(tls->socket) : NULL;
    if (bio)
        conn->session = tls_make_session(tls);
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
static ssize_t tls_explain(struct server_tls_conn *tls, int result)
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
    return result == 1 ? (ssize_t)got : tls_explain(tls, result);
}

ssize_t server_tls_write(struct server_tls_conn *tls, const void *data, size_t len)
{
    size_t sent;
    errno = 0;
    int result = SSL_write_ex(tls->session, data, len, &sent);
    if (result == 1)
        return (ssize_t)sent;
    ssize_t bytes = tls_explain(tls, result);
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
