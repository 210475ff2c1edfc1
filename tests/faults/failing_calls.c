/* Makes the N-th system call that changes a folder fail, or kills the process there. Preloaded by fork_server.py.

   fault_arm(folder, nth, how) watches calls on paths and open files below `folder` (an absolute path without links):
   how > 0 is the errno that call nth returns (from 0; -1: none, only count); how < 0 kills the process with SIGKILL,
   and a write has then put half of its bytes on disk. fault_seen() is the number of calls so far. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static size_t folder_length;
static long nth = -1;
static int how;
static atomic_long seen;

void fault_arm(const char *path, long number, int kind) {
    strncpy(folder, path, sizeof folder - 1);
    folder_length = strlen(folder);
    nth = number;
    how = kind;
    seen = 0;
}

long fault_seen(void) { return seen; }

static int inside(const char *path) {
    return folder_length && !strncmp(path, folder, folder_length) &&
           (path[folder_length] == '/' || path[folder_length] == 0);
}

static int inside_at(int at, const char *path) {
    char full[2 * PATH_MAX], name[64];
    if (!folder_length) return 0;
    if (path[0] == '/') return inside(path);
    snprintf(name, sizeof name, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
    ssize_t length = readlink(name, full, PATH_MAX - 1);
    if (length < 0) return 0;
    full[length] = '/';
    strncpy(full + length + 1, path, PATH_MAX - 1);
    full[length + 1 + strnlen(path, PATH_MAX - 1)] = 0;
    return inside(full);
}

static int inside_file(int file) {
    char full[PATH_MAX], name[64];
    if (!folder_length) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, full, sizeof full - 1);
    if (length < 0) return 0;
    full[length] = 0;
    return inside(full);
}

static int due(void) { return atomic_fetch_add(&seen, 1) == nth; }

static int fail(void) {
    if (how < 0) kill(getpid(), SIGKILL);
    errno = how;
    return -1;
}

#define REAL(name, type, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)

ssize_t write(int file, const void *data, size_t count) {
    REAL("write", ssize_t, int, const void *, size_t);
    if (inside_file(file) && due()) {
        if (how < 0) real(file, data, count / 2);
        return fail();
    }
    return real(file, data, count);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL("writev", ssize_t, int, const struct iovec *, int);
    return inside_file(file) && due() ? fail() : real(file, parts, count);
}

ssize_t pwrite64(int file, const void *data, size_t count, off_t offset) {
    REAL("pwrite64", ssize_t, int, const void *, size_t, off_t);
    return inside_file(file) && due() ? fail() : real(file, data, count, offset);
}

ssize_t pwrite(int file, const void *data, size_t count, off_t offset) { return pwrite64(file, data, count, offset); }

int fsync(int file) {
    REAL("fsync", int, int);
    return inside_file(file) && due() ? fail() : real(file);
}

int fdatasync(int file) {
    REAL("fdatasync", int, int);
    return inside_file(file) && due() ? fail() : real(file);
}

int ftruncate64(int file, off_t length) {
    REAL("ftruncate64", int, int, off_t);
    return inside_file(file) && due() ? fail() : real(file, length);
}

int ftruncate(int file, off_t length) { return ftruncate64(file, length); }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    REAL("renameat2", int, int, const char *, int, const char *, unsigned);
    return (inside_at(to, new) || inside_at(from, old)) && due() ? fail() : real(from, old, to, new, flags);
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL("renameat", int, int, const char *, int, const char *);
    return (inside_at(to, new) || inside_at(from, old)) && due() ? fail() : real(from, old, to, new);
}

int rename(const char *old, const char *new) {
    REAL("rename", int, const char *, const char *);
    return (inside_at(AT_FDCWD, new) || inside_at(AT_FDCWD, old)) && due() ? fail() : real(old, new);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL("linkat", int, int, const char *, int, const char *, int);
    return inside_at(to, new) && due() ? fail() : real(from, old, to, new, flags);
}

int link(const char *old, const char *new) {
    REAL("link", int, const char *, const char *);
    return inside_at(AT_FDCWD, new) && due() ? fail() : real(old, new);
}

int mkdirat(int at, const char *path, mode_t mode) {
    REAL("mkdirat", int, int, const char *, mode_t);
    return inside_at(at, path) && due() ? fail() : real(at, path, mode);
}

int mkdir(const char *path, mode_t mode) {
    REAL("mkdir", int, const char *, mode_t);
    return inside_at(AT_FDCWD, path) && due() ? fail() : real(path, mode);
}

#define OPEN(name)                                                                 \
    int name(const char *path, int flags, ...) {                                   \
        REAL(#name, int, const char *, int, ...);                                  \
        mode_t mode = 0;                                                           \
        if (flags & O_CREAT) {                                                     \
            va_list rest;                                                          \
            va_start(rest, flags);                                                 \
            mode = va_arg(rest, mode_t);                                           \
            va_end(rest);                                                          \
            if (inside_at(AT_FDCWD, path) && due()) return fail();                 \
        }                                                                          \
        return real(path, flags, mode);                                            \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                               \
    int name(int at, const char *path, int flags, ...) {                           \
        REAL(#name, int, int, const char *, int, ...);                             \
        mode_t mode = 0;                                                           \
        if (flags & O_CREAT) {                                                     \
            va_list rest;                                                          \
            va_start(rest, flags);                                                 \
            mode = va_arg(rest, mode_t);                                           \
            va_end(rest);                                                          \
            if (inside_at(at, path) && due()) return fail();                       \
        }                                                                          \
        return real(at, path, flags, mode);                                        \
    }
OPENAT(openat)
OPENAT(openat64)
