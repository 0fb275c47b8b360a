/*
 * Everything that is read again while the server runs: policies, Envoy's rules, certificates.
 * Loaded whole or not at all, and handed to the loops. One lock guards which is the newest; loops
 * ask for it only when the generation has changed.
 */
#include "server/conn.h"

#include "base/clock.h"
#include "base/hash.h"
#include "store/store.h"
#include "wire/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX (SERVER_ENVOY_FILES_MAX + 4)
#define GONE_MAX 2 /* looks in a row without a file: it is not just being replaced */
#define FILE_BYTES_MAX ((size_t)4 << 20)
#define SETTLE_US 500000
#define TOP_PREFIX "envoy:"

const char server_demo_policies[] =
    "version: 1\n"
    "policies:\n"
    "  - name: demo-api\n"
    "    match: {path: /api/*}\n"
    "    cross_slot: give-back\n"
    "    limits:\n"
    "      - {name: per-user, key: user, limit: \"token-bucket 20/s burst 40\"}\n"
    "      - {name: everybody, key: \"'all'\", limit: \"sliding-window 6000/m\"}\n"
    "      - {name: stricter, key: user, limit: \"token-bucket 10/s burst 20\", shadow: true}\n"
    "  - name: demo-login\n"
    "    match: {path: /login}\n"
    "    key: ip\n"
    "    limit: sliding-log 5/m\n";

static const char no_policies[] = "version: 1\npolicies: []\n";

bool server_has_demo(const struct server *server)
{
    return !server->config.policies_path && server->config.envoy_count == 0;
}

static pthread_mutex_t newest_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

/* What a file looked like when it was read. */
static struct stamp {
    struct timespec changed;
    off_t size;
    ino_t inode;
    uint64_t within; /* of a directory: its files */
} stamps[FILES_MAX];
static int gone[FILES_MAX]; /* looks in a row at which it was not there */

/* ---- directories of Envoy's rules ----
 *
 * Envoy's rules are in the files that were named, and in all *.yaml and *.yml of directories that
 * were. */

static bool rules_ends_in(const char *name, const char *ending)
{
    size_t len = strlen(name), tail = strlen(ending);
    return len > tail && !strcmp(name + len - tail, ending);
}

/* Hidden ones are editors' and Kubernetes' own. */
static int rules_is_configuration(const struct dirent *entry)
{
    return entry->d_name[0] != '.' &&
           (rules_ends_in(entry->d_name, ".yaml") || rules_ends_in(entry->d_name, ".yml"));
}

static bool rules_is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static char *rules_join(const char *directory, const char *name)
{
    size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", directory, name);
    return path;
}

/* What the files of a directory are like: names, times, sizes. */
static uint64_t rules_directory_stamp(const char *path)
{
    struct dirent **entries = NULL;
    int n =
        rules_is_directory(path) ? scandir(path, &entries, rules_is_configuration, alphasort) : -1;
    uint64_t stamp[2] = {(uint64_t)n, 0};
    for (int i = 0; i < n; i++) {
        struct stat info = {0};
        char *file = rules_join(path, entries[i]->d_name);
        if (file && stat(file, &info) == 0) {
            const uint64_t facts[] = {(uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec,
                                      (uint64_t)info.st_size, (uint64_t)info.st_ino};
            weir__hash(stamp, facts, sizeof facts, stamp);
        }
        weir__hash(stamp, entries[i]->d_name, strlen(entries[i]->d_name), stamp);
        free(file);
        free(entries[i]);
    }
    free(entries);
    return stamp[0];
}

/* ---- files ---- */

/* All files that are watched; how many. */
static size_t rules_list_files(const struct server_config *config, const char *ret[FILES_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < config->envoy_count; i++)
        ret[n++] = config->envoy_paths[i];
    const char *const others[] = {config->policies_path, config->tls_cert, config->tls_key,
                                  config->tls_client_ca};
    for (size_t i = 0; i < WEIR__COUNT(others); i++) {
        if (others[i])
            ret[n++] = others[i];
    }
    return n;
}

static struct stamp rules_stamp_of(const char *path)
{
    struct stat info;
    if (stat(path, &info))
        return (struct stamp){.size = -1};
    if (S_ISDIR(info.st_mode))
        return (struct stamp){.inode = info.st_ino, .within = rules_directory_stamp(path)};
    return (struct stamp){info.st_mtim, info.st_size, info.st_ino, 0};
}

/* Whether somebody has the file open for writing: then what is there may be half of it. Linux tells
 * by refusing a lease; where there are none, or the file is another user's, nobody is said to. */
static bool rules_is_being_written(int fd)
{
    if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
        fcntl(fd, F_SETLEASE, F_UNLCK);
        return false;
    }
    return errno == EAGAIN;
}

/* A file that changed a moment ago, or that somebody still writes, is not to be read yet: half of
 * it may be there, and half of it may be a good file. */
static bool rules_is_ready(const char *path, const struct stamp *stamp)
{
    int64_t age_us =
        weir__clock_us() - (int64_t)stamp->changed.tv_sec * 1000000 - stamp->changed.tv_nsec / 1000;
    if (age_us >= 0 && age_us < SETTLE_US)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool writing = fd >= 0 && rules_is_being_written(fd);
    if (fd >= 0)
        close(fd);
    if (writing)
        server_report_once(
            path, "%s has changed and is open for writing; it is read when it is closed", path);
    return !writing;
}

bool server_rules_stale(struct server *server)
{
    bool stale = false;
    const char *files[FILES_MAX];
    size_t n = rules_list_files(&server->config, files);
    if (pthread_mutex_trylock(&load_lock)) /* being read just now */
        return false;
    for (size_t i = 0; i < n; i++) {
        struct stamp now = rules_stamp_of(files[i]);
        bool changed = memcmp(&now, &stamps[i], sizeof now) != 0;
        /* A file that is gone for a moment is being replaced; one that stays away is a mistake. */
        gone[i] = now.size < 0 ? gone[i] + 1 : 0;
        stale = stale ||
                (changed && (now.size < 0 ? gone[i] >= GONE_MAX : rules_is_ready(files[i], &now)));
    }
    pthread_mutex_unlock(&load_lock);
    return stale;
}

/* Whether it was changed since. */
static bool rules_has_changed(int fd, const struct stat *before)
{
    struct stat now;
    return fstat(fd, &now) == 0 &&
           (now.st_size != before->st_size || now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != before->st_mtim.tv_nsec);
}

/* Not by a FIFO, which may keep whoever opens it waiting, and can be read only once anyway. */
static int rules_open_to_read(const char *path, int *ret, struct stat *ret_info, weir_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, ret_info)) {
        weir__fail(err, WEIR_ESYSTEM, 0, "cannot read %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return WEIR_ESYSTEM;
    }
    if (S_ISFIFO(ret_info->st_mode) || S_ISSOCK(ret_info->st_mode)) {
        close(fd);
        return weir__fail(err, WEIR_ESYSTEM, 0,
                          "cannot read %s: it is a pipe, which can be read only once; give a file",
                          path);
    }
    *ret = fd;
    return 0;
}

int server_rules_read_file(const char *path, char **ret, size_t *ret_len, weir_error *err)
{
    struct stat before;
    int fd = -1, code = rules_open_to_read(path, &fd, &before, err);
    if (code)
        return code;
    char *text = malloc(FILE_BYTES_MAX + 1);
    size_t len = 0;
    ssize_t got = 1;
    bool half = rules_is_being_written(fd);
    while (text && got > 0 && len <= FILE_BYTES_MAX) {
        got = read(fd, text + len, FILE_BYTES_MAX + 1 - len);
        len += got > 0 ? (size_t)got : 0;
    }
    int failed = got < 0 ? errno : !text ? ENOMEM : 0;
    half = !failed && (half || rules_has_changed(fd, &before));
    close(fd);
    if (half) {
        free(text);
        return weir__fail(err, WEIR_EBUSY, 0,
                          "%s is being written and may be incomplete; write another file and "
                          "rename it to this name",
                          path);
    }
    if (failed || len > FILE_BYTES_MAX) {
        free(text);
        return weir__fail(err, WEIR_ESYSTEM, 0, "cannot read %s: %s", path,
                          failed ? strerror(failed) : "it is longer than 4 MiB");
    }
    char *fitting = realloc(text, len + 1); /* there may be many */
    *ret = fitting ? fitting : text;
    *ret_len = len;
    return 0;
}

/* ---- Envoy's rules ---- */

struct loading {
    struct weir__envoy_file files[WEIR__ENVOY_FILES_MAX];
    char *paths[WEIR__ENVOY_FILES_MAX], *texts[WEIR__ENVOY_FILES_MAX];
    size_t count;
};

static int rules_add_file(struct loading *loading, const char *path, weir_error *err)
{
    size_t i = loading->count;
    if (i == WEIR__ENVOY_FILES_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "%s: a configuration has at most %d files", path,
                          WEIR__ENVOY_FILES_MAX);
    loading->paths[i] = strdup(path);
    loading->texts[i] = NULL;
    if (!loading->paths[i])
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for %s", path);
    loading->count++;
    int code = server_rules_read_file(path, &loading->texts[i], &loading->files[i].len, err);
    loading->files[i].name = loading->paths[i];
    loading->files[i].text = loading->texts[i];
    return code;
}

static int rules_add_directory(struct loading *loading, const char *path, weir_error *err)
{
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, rules_is_configuration, alphasort), code = 0;
    size_t before = loading->count;
    if (n < 0)
        return weir__fail(err, WEIR_ESYSTEM, 0, "cannot read %s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *file = code == 0 ? rules_join(path, entries[i]->d_name) : NULL;
        if (code == 0 && !file)
            code = weir__fail(err, WEIR_ENOMEM, 0, "out of memory for %s", path);
        if (code == 0 && !rules_is_directory(file))
            code = rules_add_file(loading, file, err);
        free(file);
        free(entries[i]);
    }
    free(entries);
    if (code == 0 && loading->count == before)
        code = weir__fail(err, WEIR_EINVAL, 0,
                          "%s holds no rules: expected files that end in .yaml or .yml", path);
    return code;
}

/* *ret stays as it is where there are none. */
static int rules_load_envoy(const struct server_config *config, struct weir__envoy **ret,
                            weir_error *err)
{
    if (config->envoy_count == 0)
        return 0;
    struct loading *loading = malloc(sizeof *loading);
    if (!loading)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for Envoy's rules");
    loading->count = 0;
    int code = 0;
    for (size_t i = 0; i < config->envoy_count && code == 0; i++) {
        const char *path = config->envoy_paths[i];
        code = rules_is_directory(path) ? rules_add_directory(loading, path, err)
                                        : rules_add_file(loading, path, err);
    }
    if (code == 0)
        code = weir__envoy_load(loading->files, loading->count, config->envoy_merge, ret, err);
    while (loading->count > 0) {
        free(loading->texts[--loading->count]);
        free(loading->paths[loading->count]);
    }
    free(loading);
    return code;
}

/* ---- what is counted ---- */

static uint32_t rules_top_of(struct server_top *top, const char *domain)
{
    char room[sizeof TOP_PREFIX + WEIR__ENVOY_TEXT_MAX];
    struct weir__buffer name = weir__buffer_over(room, sizeof room);
    weir__put_text(&name, TOP_PREFIX);
    weir__put_text(&name, domain);
    return server_top_policy(top, room);
}

static int rules_resolve_envoy(const struct server *server, struct server_rules *rules,
                               weir_error *err)
{
    const struct weir__envoy *envoy = rules->envoy;
    size_t rule_count = envoy ? envoy->rule_count : 0;
    size_t domain_count = envoy ? envoy->domain_count : 0;
    rules->envoy_rules = calloc(rule_count + 1, sizeof *rules->envoy_rules);
    rules->envoy_domains = calloc(domain_count + 1, sizeof *rules->envoy_domains);
    if (!rules->envoy_rules || !rules->envoy_domains)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the rules' counters");
    for (size_t i = 0; i < rule_count; i++) {
        const struct weir__envoy_rule *rule = envoy->rules[i];
        rules->envoy_rules[rule->index] =
            server_metrics_rule(server->metrics, rule->domain, rule->name);
    }
    const struct weir__envoy_domain *domain = envoy ? envoy->first_domain : NULL;
    for (; domain; domain = domain->next) {
        const char *name = domain->node.key.data;
        rules->envoy_domains[domain->index] = (struct server_envoy_domain){
            .whole = server_metrics_rule(server->metrics, name, ""),
            .brought = server_metrics_rule(server->metrics, name, SERVER_RULE_BROUGHT),
            .top = rules_top_of(server->top, name),
        };
    }
    return 0;
}

/* ---- loading ---- */

/* Keys with a hash(…) need a secret that is the same tomorrow, and on every server that shares the
 * store. */
static int rules_give_secret(const struct server *server, struct weir__policies *policies,
                             weir_error *err)
{
    static const char purpose[] = "weir: the secret of hashed keys";
    uint64_t secret[2];
    const char *given = getenv("WEIR_RECEIPT_SECRET");
    if (!policies->hashes)
        return 0;
    if (server->remote && (!given || !*given))
        return weir__fail(
            err, WEIR_EINVAL, 0,
            "%s: a key has a hash(), which needs a secret that all servers of the store "
            "share; set $WEIR_RECEIPT_SECRET",
            server->config.policies_path);
    weir__hash(server->receipt_secret, purpose, sizeof purpose - 1, secret);
    weir__policies_set_secret(policies, secret);
    return 0;
}

static int rules_load_policies(const struct server *server, struct server_rules *rules,
                               weir_error *err)
{
    const char *path = server->config.policies_path;
    bool cluster = !strncmp(server->config.store_url, "redis+cluster:", 14) ||
                   !strncmp(server->config.store_url, "rediss+cluster:", 15);
    char *text = NULL;
    size_t len = 0;
    const char *built_in = server_has_demo(server) ? server_demo_policies : no_policies;
    if (!path)
        return weir__policies_parse(built_in, strlen(built_in), "the demonstration", cluster,
                                    &rules->policies, err);
    int code = server_rules_read_file(path, &text, &len, err);
    if (code == 0)
        code = weir__policies_parse(text, len, path, cluster, &rules->policies, err);
    free(text);
    return code ? code : rules_give_secret(server, rules->policies, err);
}

/* The next of what is hardly meant, then of what may be; false: there is no more. */
static bool rules_next_note(const struct weir__policies *policies, const struct weir__warning **it,
                            struct weir__note_at *at, struct weir__buffer *out)
{
    if (!*it)
        return weir__policies_note(policies, at, out);
    weir__put_format(out, "warning: %s", (*it)->text);
    *it = (*it)->next;
    return true;
}

/* In the log, and as the member "notes" of `told` if that is not NULL. The rest of a long list is
 * for weir check. */
static void rules_tell(const struct weir__policies *policies, struct weir__json *told)
{
    char text[WEIR__NOTE_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    struct weir__note_at at = {0};
    const struct weir__warning *it = policies->warnings;
    size_t count = 0;
    for (; rules_next_note(policies, &it, &at, &buffer); buffer.len = 0, count++) {
        if (count == SERVER_NOTES_TOLD) {
            buffer.len = 0;
            weir__put_text(&buffer, "there are more notes; `weir check` prints all of them");
        }
        server_report("%s", text);
        if (told && count == 0)
            weir__json_open(told, "notes", '[');
        if (told)
            weir__json_put_text(told, NULL, text, buffer.len);
        if (count == SERVER_NOTES_TOLD)
            break;
    }
    if (told && count > 0)
        weir__json_close(told, ']');
}

static uint32_t rules_shadow_top(struct server *server, const struct weir__policy *policy)
{
    char name[WEIR__POLICY_NAME_MAX + sizeof SERVER_TOP_SHADOW];
    snprintf(name, sizeof name, "%s" SERVER_TOP_SHADOW, policy->name);
    return server_top_policy(server->top, name);
}

static int rules_resolve_counters(struct server *server, struct server_rules *rules,
                                  weir_error *err)
{
    size_t count = rules->policies->count;
    rules->tops = calloc(count ? count : 1, sizeof *rules->tops);
    rules->shadow_tops = calloc(count ? count : 1, sizeof *rules->shadow_tops);
    if (!rules->tops || !rules->shadow_tops ||
        server_metrics_resolve(server->metrics, rules->policies, &rules->series))
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the policies' counters");
    for (size_t i = 0; i < count; i++) {
        const struct weir__policy *policy = &rules->policies->policies[i];
        bool shadow = false;
        for (size_t j = 0; j < policy->entry_count; j++)
            shadow = shadow || policy->entries[j].shadow;
        rules->tops[i] = server_top_policy(server->top, policy->name);
        rules->shadow_tops[i] = shadow ? rules_shadow_top(server, policy) : SERVER_TOP_OTHER;
    }
    return rules_resolve_envoy(server, rules, err);
}

/* The limits of policies and Envoy's rules have their places in the store from now on, whatever
 * limits clients make up. */
static int rules_reserve_limits(struct server *server, struct server_rules *rules, weir_error *err)
{
    const char *path = server->config.policies_path;
    size_t count = rules->policies->limit_count;
    size_t envoy_count = rules->envoy ? rules->envoy->limit_count : 0;
    const weir_limit **all = malloc((count + envoy_count + 1) * sizeof(weir_limit *));
    weir_error why;
    if (!all)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the policies");
    if (count > 0)
        memcpy(all, rules->policies->limits, count * sizeof(weir_limit *));
    if (envoy_count > 0)
        weir__envoy_limits(rules->envoy, all + count);
    int code = weir__store_reserve(server->store, all, count + envoy_count, &why);
    free(all);
    if (code == 0)
        return 0;
    return weir__fail(err, code, 0, "%s%s%s: %s", path ? path : "",
                      path && envoy_count ? " and " : "",
                      envoy_count ? "Envoy's rules"
                      : path      ? ""
                                  : "the demonstration",
                      why.message);
}

static void rules_free(struct server_rules *rules)
{
    weir__policies_free(rules->policies);
    weir__envoy_free(rules->envoy);
    server_series_ids_free(&rules->series);
    free(rules->tops);
    free(rules->shadow_tops);
    free(rules->envoy_rules);
    free(rules->envoy_domains);
    free(rules);
}

static void rules_put_in_force(struct server *server, struct server_rules *rules)
{
    pthread_mutex_lock(&newest_lock);
    struct server_rules *old = server->rules;
    rules->generation = atomic_load(&server->rules_generation) + 1;
    server->rules = rules;
    atomic_store(&server->rules_generation, rules->generation);
    pthread_mutex_unlock(&newest_lock);
    if (old)
        server_rules_release(old);
}

/* Before reading: a change that comes later is seen. */
static void rules_note_stamps(const struct server_config *config)
{
    const char *files[FILES_MAX];
    size_t n = rules_list_files(config, files);
    for (size_t i = 0; i < n; i++)
        stamps[i] = rules_stamp_of(files[i]);
}

static int rules_load(struct server *server, struct weir__json *told, weir_error *err)
{
    struct server_rules *rules = calloc(1, sizeof *rules);
    struct server_tls_context *tls = NULL;
    if (!rules)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the policies");
    atomic_init(&rules->users, 1);
    rules_note_stamps(&server->config);
    int code = rules_load_policies(server, rules, err);
    if (code == 0)
        code = rules_load_envoy(&server->config, &rules->envoy, err);
    if (code == 0)
        code = rules_resolve_counters(server, rules, err);
    if (code == 0 && server->tls)
        code = server_tls_read_files(&server->config, &tls, err);
    if (code == 0)
        code = rules_reserve_limits(server, rules, err);
    if (code) {
        if (tls)
            server_tls_context_free(tls);
        rules_free(rules);
        return code;
    }
    rules_tell(rules->policies, told);
    rules_put_in_force(server, rules);
    if (tls) {
        server_tls_use(server->tls, tls);
        server_metrics_certificate(server->metrics, server_tls_expires(server->tls));
    }
    return 0;
}

int server_rules_load(struct server *server, struct weir__json *told, weir_error *err)
{
    pthread_mutex_lock(&load_lock);
    int code = rules_load(server, told, err);
    pthread_mutex_unlock(&load_lock);
    server_metrics_reloaded(server->metrics, code == 0, weir__clock_us());
    bool all = code == 0 && atomic_load(&server->ready); /* before that, threads are still made */
    for (int i = 0; all && i < server->thread_count; i++)
        server_thread_wake(server->threads[i]);
    return code;
}

/* ---- using ---- */

struct server_rules *server_rules_hold(struct server_rules *rules)
{
    atomic_fetch_add(&rules->users, 1);
    return rules;
}

void server_rules_release(struct server_rules *rules)
{
    if (atomic_fetch_sub(&rules->users, 1) == 1)
        rules_free(rules);
}

struct server_rules *server_rules_newest(struct server *server, struct server_rules *old)
{
    pthread_mutex_lock(&newest_lock);
    struct server_rules *newest = server_rules_hold(server->rules);
    pthread_mutex_unlock(&newest_lock);
    if (old)
        server_rules_release(old);
    return newest;
}
