/* Makes a file system slow: each metadata call on a path below SLOW_BELOW (folders, separated by `:`) takes 1 ms more,
   and is counted in the file SLOW_COUNT, which all processes of the job share. What the dynamic loader opens is left out.

   Compiled by staged_start.py: cc -shared -fPIC -O2 -o slow.so slow_metadata.c */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *below;
static atomic_long *count;

__attribute__((constructor)) static void begin(void) {
  below = getenv("SLOW_BELOW");
  const char *file = getenv("SLOW_COUNT");
  int descriptor = file ? open(file, O_RDWR) : -1;
  void *page = descriptor < 0 ? MAP_FAILED : mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  count = page == MAP_FAILED ? NULL : page;
  if (descriptor >= 0)
    close(descriptor);
}

static void wait_for(const char *path) {
  if (!count || !below || !path || path[0] != '/')
    return;
  for (const char *folder = below; *folder;) {
    size_t length = strcspn(folder, ":");
    if (!strncmp(path, folder, length) && (path[length] == '/' || !path[length])) {
      struct timespec pause = {0, 1000000};
      atomic_fetch_add(count, 1);
      nanosleep(&pause, NULL);
      return;
    }
    folder += length + (folder[length] == ':');
  }
}

#define NEXT(name) \
  static typeof(name) *next; \
  if (!next) \
    next = (typeof(name) *)dlsym(RTLD_NEXT, #name)
#define SLOW(result, name, parameters, path, ...) \
  result name parameters { \
    NEXT(name); \
    wait_for(path); \
    return next(__VA_ARGS__); \
  }
#define SLOW_OPEN(name) \
  int name(const char *path, int flags, ...) { \
    NEXT(name); \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    wait_for(path); \
    return next(path, flags, mode); \
  }
#define SLOW_OPENAT(name) \
  int name(int folder, const char *path, int flags, ...) { \
    NEXT(name); \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    wait_for(path); \
    return next(folder, path, flags, mode); \
  }

SLOW_OPEN(open)
SLOW_OPEN(open64)
SLOW_OPENAT(openat)
SLOW_OPENAT(openat64)
SLOW(FILE *, fopen, (const char *path, const char *mode), path, path, mode)
SLOW(FILE *, fopen64, (const char *path, const char *mode), path, path, mode)
SLOW(int, stat, (const char *path, struct stat *into), path, path, into)
SLOW(int, stat64, (const char *path, struct stat64 *into), path, path, into)
SLOW(int, lstat, (const char *path, struct stat *into), path, path, into)
SLOW(int, lstat64, (const char *path, struct stat64 *into), path, path, into)
SLOW(int, fstatat, (int folder, const char *path, struct stat *into, int flags), path, folder, path, into, flags)
SLOW(int, fstatat64, (int folder, const char *path, struct stat64 *into, int flags), path, folder, path, into, flags)
SLOW(int, statx, (int folder, const char *path, int flags, unsigned mask, struct statx *into), path, folder, path, flags, mask, into)
SLOW(int, access, (const char *path, int mode), path, path, mode)
SLOW(int, faccessat, (int folder, const char *path, int mode, int flags), path, folder, path, mode, flags)
SLOW(ssize_t, readlink, (const char *path, char *into, size_t size), path, path, into, size)
SLOW(ssize_t, readlinkat, (int folder, const char *path, char *into, size_t size), path, folder, path, into, size)
SLOW(DIR *, opendir, (const char *path), path, path)
