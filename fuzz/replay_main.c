/*
 * Runs a fuzz target over files instead of under libFuzzer: what the ordinary tests do with the
 * corpus, and how a crash is looked at.
 *
 *     fuzz_limit FILE-OR-FOLDER …
 */
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>

static long replayed;

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    if (!file || fstat(fileno(file), &status)) {
        perror(path);
        return 1;
    }
    size_t size = (size_t)status.st_size;
    uint8_t *data = malloc(size + !size);
    EXPECT(data && fread(data, 1, size, file) == size, "%s: cannot read it", path);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    replayed++;
    return 0;
}

static int replay_folder(const char *path, DIR *folder)
{
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        failed += replay_file(name);
    }
    closedir(folder);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        failed += folder ? replay_folder(argv[i], folder) : replay_file(argv[i]);
    }
    printf("%ld passed, %d failed\n", replayed, failed);
    return failed || replayed == 0;
}
