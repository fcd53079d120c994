/* Writes down what a process asks of the files below one directory, in the order in which it happens.
 *
 * Rules of this file: preloaded (LD_PRELOAD), it changes no call's result. One call, one record, written after
 * the call succeeded, both under one lock, so that the log's order is the calls' own. A call that would change
 * a file in a way not written down here is recorded as unknown ('?'), and the replay refuses such a log.
 *
 * HOLDFAST_POWERLOSS_ROOT: the directory; HOLDFAST_POWERLOSS_LOG: the log, appended to.
 * HOLDFAST_POWERLOSS_KILL: the number of a record (from 1) with which the process kills itself: after the call,
 * or before it where the call is a sync; a write that is a sync as well is then recorded as a write alone.
 *
 * A record: struct head, path, second path, data. Native byte order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct head {
    uint8_t kind;
    uint8_t synced;
    uint16_t path_bytes;
    uint16_t second_bytes;
    uint16_t unused;
    int64_t offset;
    uint64_t data_bytes;
};

static pthread_mutex_t ordered = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char root[PATH_MAX];
static size_t root_bytes;
static int log_fd = -1;
static long kill_at, records;

#define REAL(name) ((__typeof__(&name)) real(#name))

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        abort();
    return found;
}

__attribute__((constructor)) static void begin(void)
{
    const char *where = getenv("HOLDFAST_POWERLOSS_ROOT");
    const char *log = getenv("HOLDFAST_POWERLOSS_LOG");
    const char *number = getenv("HOLDFAST_POWERLOSS_KILL");
    if (where == NULL || log == NULL || strlen(where) >= sizeof root)
        return;
    strcpy(root, where);
    root_bytes = strlen(root);
    kill_at = number == NULL ? 0 : atol(number);
    log_fd = (int) syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int below(const char *path)
{
    return log_fd >= 0 && strncmp(path, root, root_bytes) == 0 && (path[root_bytes] == '/' || path[root_bytes] == 0);
}

/* The path of an open descriptor, as it is called now. */
static int named(int fd, char *path)
{
    char link[64];
    if (log_fd < 0)
        return 0;
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, PATH_MAX - 1);
    errno = kept;
    if (bytes < 0)
        return 0;
    path[bytes] = 0;
    return below(path);
}

static int resolved(int dir, const char *name, char *path)
{
    char base[PATH_MAX];
    if (log_fd < 0 || name == NULL)
        return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        if (dir == AT_FDCWD) {
            if (getcwd(base, sizeof base) == NULL)
                return 0;
        } else {
            named(dir, base);
        }
        if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX)
            return 0;
    }
    return below(path);
}

static void put(struct head head, const char *path, const char *second, const struct iovec *data, int pieces)
{
    struct iovec parts[3 + 1024];
    head.path_bytes = (uint16_t) strlen(path);
    head.second_bytes = second == NULL ? 0 : (uint16_t) strlen(second);
    parts[0] = (struct iovec){&head, sizeof head};
    parts[1] = (struct iovec){(void *) path, head.path_bytes};
    parts[2] = (struct iovec){(void *) second, head.second_bytes};
    size_t left = head.data_bytes, total = sizeof head + head.path_bytes + head.second_bytes + head.data_bytes;
    int count = 3;
    for (int i = 0; i < pieces && left > 0; i++) {
        size_t bytes = data[i].iov_len < left ? data[i].iov_len : left;
        parts[count++] = (struct iovec){data[i].iov_base, bytes};
        left -= bytes;
        if (count == 1024) {
            if (left > 0)
                abort();
            break;
        }
    }
    int kept = errno;
    if ((size_t) syscall(SYS_writev, log_fd, parts, count) != total)
        abort();
    errno = kept;
    if (++records == kill_at)
        syscall(SYS_kill, getpid(), SIGKILL);
}

static void put_path(char kind, const char *path, const char *second, int64_t number)
{
    put((struct head){.kind = (uint8_t) kind, .offset = number}, path, second, NULL, 0);
}

static void lock(void) { pthread_mutex_lock(&ordered); }
static void unlock(void) { pthread_mutex_unlock(&ordered); }

/* ------------------------------------------------------------------------------------------------ contents */

static void wrote(int fd, const char *path, const struct iovec *data, int pieces, int64_t offset, size_t bytes)
{
    int synced = (fcntl(fd, F_GETFL) & O_DSYNC) != 0 && records + 1 != kill_at;
    put((struct head){.kind = 'w', .synced = (uint8_t) synced, .offset = offset, .data_bytes = bytes}, path, NULL,
        data, pieces);
}

#define WRITE(name, offset_before, data, pieces, call)                \
    do {                                                              \
        char path[PATH_MAX];                                          \
        if (!named(fd, path))                                         \
            return call;                                              \
        lock();                                                       \
        int64_t at = offset_before;                                   \
        ssize_t done = call;                                          \
        if (done > 0)                                                 \
            wrote(fd, path, data, pieces, at, (size_t) done);         \
        unlock();                                                     \
        return done;                                                  \
    } while (0)

static int64_t place(int fd)
{
    if (fcntl(fd, F_GETFL) & O_APPEND) {
        struct stat state;
        return fstat(fd, &state) == 0 ? state.st_size : -1;
    }
    return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    struct iovec data = {(void *) bytes, count};
    WRITE(write, place(fd), &data, 1, REAL(write)(fd, bytes, count));
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    struct iovec data = {(void *) bytes, count};
    WRITE(pwrite, offset, &data, 1, REAL(pwrite)(fd, bytes, count, offset));
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    struct iovec data = {(void *) bytes, count};
    WRITE(pwrite64, offset, &data, 1, REAL(pwrite64)(fd, bytes, count, offset));
}

ssize_t writev(int fd, const struct iovec *data, int pieces)
{
    WRITE(writev, place(fd), data, pieces, REAL(writev)(fd, data, pieces));
}

ssize_t pwritev(int fd, const struct iovec *data, int pieces, off_t offset)
{
    WRITE(pwritev, offset, data, pieces, REAL(pwritev)(fd, data, pieces, offset));
}

ssize_t pwritev64(int fd, const struct iovec *data, int pieces, off64_t offset)
{
    WRITE(pwritev64, offset, data, pieces, REAL(pwritev64)(fd, data, pieces, offset));
}

#define ON_FILE(kind, number, call)                   \
    do {                                              \
        char path[PATH_MAX];                          \
        if (!named(fd, path))                         \
            return call;                              \
        lock();                                       \
        __typeof__(call) done = call;                 \
        if (done == 0)                                \
            put_path(kind, path, NULL, number);       \
        unlock();                                     \
        return done;                                  \
    } while (0)

/* Killed in its sync: the call is neither made nor recorded. */
#define SYNC(call)                                                    \
    do {                                                              \
        char path[PATH_MAX];                                          \
        if (named(fd, path) && kill_at > 0 && records + 1 >= kill_at) \
            syscall(SYS_kill, getpid(), SIGKILL);                     \
        ON_FILE('s', 0, call);                                        \
    } while (0)

int ftruncate(int fd, off_t length) { ON_FILE('t', length, REAL(ftruncate)(fd, length)); }
int ftruncate64(int fd, off64_t length) { ON_FILE('t', length, REAL(ftruncate64)(fd, length)); }
int fallocate(int fd, int mode, off_t offset, off_t length)
{
    ON_FILE(mode == 0 ? 'g' : '?', offset + length, REAL(fallocate)(fd, mode, offset, length));
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length)
{
    ON_FILE(mode == 0 ? 'g' : '?', offset + length, REAL(fallocate64)(fd, mode, offset, length));
}
int posix_fallocate(int fd, off_t offset, off_t length)
{
    ON_FILE('g', offset + length, REAL(posix_fallocate)(fd, offset, length));
}
int posix_fallocate64(int fd, off64_t offset, off64_t length)
{
    ON_FILE('g', offset + length, REAL(posix_fallocate64)(fd, offset, length));
}
int fsync(int fd) { SYNC(REAL(fsync)(fd)); }
int fdatasync(int fd) { SYNC(REAL(fdatasync)(fd)); }

static void mapped(int fd, int protection, int flags)
{
    char path[PATH_MAX];
    if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_SHARED) && named(fd, path)) {
        lock();
        put_path('m', path, NULL, 0);
        unlock();
    }
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    void *done = REAL(mmap)(address, length, protection, flags, fd, offset);
    if (done != MAP_FAILED)
        mapped(fd, protection, flags);
    return done;
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
    void *done = REAL(mmap64)(address, length, protection, flags, fd, offset);
    if (done != MAP_FAILED)
        mapped(fd, protection, flags);
    return done;
}

ssize_t sendfile64(int fd, int from, off64_t *offset, size_t count)
{
    ssize_t done = REAL(sendfile64)(fd, from, offset, count);
    char path[PATH_MAX];
    if (done > 0 && named(fd, path))
        put_path('?', path, NULL, 0);
    return done;
}

ssize_t copy_file_range(int from, off64_t *offset, int fd, off64_t *into, size_t count, unsigned flags)
{
    ssize_t done = REAL(copy_file_range)(from, offset, fd, into, count, flags);
    char path[PATH_MAX];
    if (done > 0 && named(fd, path))
        put_path('?', path, NULL, 0);
    return done;
}

/* ------------------------------------------------------------------------------------------------ names */

#define CHANGING (O_CREAT | O_TRUNC)

#define OPEN(directory, call)                                                                             \
    do {                                                                                                  \
        mode_t mode = 0;                                                                                  \
        char path[PATH_MAX];                                                                              \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                            \
            va_list more;                                                                                 \
            va_start(more, flags);                                                                        \
            mode = va_arg(more, mode_t);                                                                  \
            va_end(more);                                                                                 \
        }                                                                                                 \
        if (!(flags & CHANGING) || !resolved(directory, name, path))                                      \
            return call;                                                                                  \
        lock();                                                                                           \
        int done = call;                                                                                  \
        if (done >= 0)                                                                                    \
            put_path('o', path, NULL, (flags & O_TRUNC) != 0);                                            \
        unlock();                                                                                         \
        return done;                                                                                      \
    } while (0)

int open(const char *name, int flags, ...) { OPEN(AT_FDCWD, REAL(open)(name, flags, mode)); }
int open64(const char *name, int flags, ...) { OPEN(AT_FDCWD, REAL(open64)(name, flags, mode)); }
int openat(int dir, const char *name, int flags, ...) { OPEN(dir, REAL(openat)(dir, name, flags, mode)); }
int openat64(int dir, const char *name, int flags, ...) { OPEN(dir, REAL(openat64)(dir, name, flags, mode)); }

#define ON_NAME(kind, directory, call)                \
    do {                                              \
        char path[PATH_MAX];                          \
        if (!resolved(directory, name, path))         \
            return call;                              \
        lock();                                       \
        int done = call;                              \
        if (done == 0)                                \
            put_path(kind, path, NULL, 0);            \
        unlock();                                     \
        return done;                                  \
    } while (0)

int mkdir(const char *name, mode_t mode) { ON_NAME('d', AT_FDCWD, REAL(mkdir)(name, mode)); }
int mkdirat(int dir, const char *name, mode_t mode) { ON_NAME('d', dir, REAL(mkdirat)(dir, name, mode)); }
int rmdir(const char *name) { ON_NAME('u', AT_FDCWD, REAL(rmdir)(name)); }
int unlink(const char *name) { ON_NAME('u', AT_FDCWD, REAL(unlink)(name)); }
int remove(const char *name) { ON_NAME('u', AT_FDCWD, REAL(remove)(name)); }
int unlinkat(int dir, const char *name, int flags) { ON_NAME('u', dir, REAL(unlinkat)(dir, name, flags)); }
int truncate(const char *name, off_t length) { ON_NAME('?', AT_FDCWD, REAL(truncate)(name, length)); }
int truncate64(const char *name, off64_t length) { ON_NAME('?', AT_FDCWD, REAL(truncate64)(name, length)); }
int link(const char *other, const char *name) { ON_NAME('?', AT_FDCWD, REAL(link)(other, name)); }
int symlink(const char *other, const char *name) { ON_NAME('?', AT_FDCWD, REAL(symlink)(other, name)); }

/* A rename into or out of the directory is unknown. */
#define RENAME(from, into, call)                                              \
    do {                                                                      \
        char path[PATH_MAX], second[PATH_MAX];                                \
        int inner = resolved(from, name, path);                               \
        if (!resolved(into, next, second) && !inner)                          \
            return call;                                                      \
        lock();                                                               \
        int done = call;                                                      \
        if (done == 0)                                                        \
            put_path(inner && below(second) ? 'r' : '?', path, second, 0);    \
        unlock();                                                             \
        return done;                                                          \
    } while (0)

int rename(const char *name, const char *next) { RENAME(AT_FDCWD, AT_FDCWD, REAL(rename)(name, next)); }
int renameat(int from, const char *name, int into, const char *next)
{
    RENAME(from, into, REAL(renameat)(from, name, into, next));
}
