/*
 * Envoy's rules as files: those that were named, and all *.yaml and *.yml of directories that were; and the
 * ids of what is counted by rule and by domain. See server.h; rules.c decides when.
 */
#include "server/server.h"

#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TOP_PREFIX "envoy:"

/* ---- directories ---- */

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
uint64_t server_envoy_directory_stamp(const char *path)
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

struct loading {
    struct weir__envoy_file files[WEIR__ENVOY_FILES_MAX];
    char *paths[WEIR__ENVOY_FILES_MAX], *texts[WEIR__ENVOY_FILES_MAX];
    size_t count;
};

static int rules_add_file(struct loading *loading, const char *path, weir_error *err)
{
    size_t i = loading->count;
    if (i == WEIR__ENVOY_FILES_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "%s: more than %d files make one configuration",
                          path, WEIR__ENVOY_FILES_MAX);
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

int server_envoy_load(const struct server_config *config, struct weir__envoy **ret, weir_error *err)
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

int server_envoy_resolve(const struct server *server, struct server_rules *rules, weir_error *err)
{
    const struct weir__envoy *envoy = rules->envoy;
    const struct weir__envoy_domain *domain = NULL;
    size_t rule_count = envoy ? weir__envoy_count(envoy) : 0;
    size_t domain_count = envoy ? weir__envoy_domain_count(envoy) : 0;
    rules->envoy_rules = calloc(rule_count + 1, sizeof *rules->envoy_rules);
    rules->envoy_domains = calloc(domain_count + 1, sizeof *rules->envoy_domains);
    if (!rules->envoy_rules || !rules->envoy_domains)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the rules' counters");
    for (size_t i = 0; i < rule_count; i++) {
        const struct weir__envoy_rule *rule = weir__envoy_at(envoy, i);
        rules->envoy_rules[rule->index] =
            server_metrics_rule(server->metrics, rule->domain, rule->name);
    }
    while (envoy && (domain = weir__envoy_next_domain(envoy, domain))) {
        const char *name = weir__envoy_domain_name(domain);
        rules->envoy_domains[weir__envoy_domain_index(domain)] = (struct server_envoy_domain){
            .whole = server_metrics_rule(server->metrics, name, ""),
            .brought = server_metrics_rule(server->metrics, name, SERVER_RULE_BROUGHT),
            .top = rules_top_of(server->top, name),
        };
    }
    return 0;
}
