/* Loaded before libc: counts every call that changes a file below FAULT_ROOT and makes the k-th one go wrong.
 *
 * A fault is armed from inside the process (fault_arm). Kinds: 1 the process dies in the middle of the call
 * (half of a write is done), 2 the call fails once: a write is cut short and the next one finds no space, a
 * sync fails with EIO, the others with ENOSPC. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long armed, seen;
static int kind, follow_up;
static char root[PATH_MAX];

void fault_arm(const char *below, long k, int what) {
  snprintf(root, sizeof root, "%s", below);
  armed = k; kind = what; seen = 0; follow_up = 0;
}
long fault_seen(void) { return seen; }

static int below_root(const char *path) { return root[0] && path && strncmp(path, root, strlen(root)) == 0; }

static int ours(int fd) {
  char link[64], path[PATH_MAX];
  if (!root[0]) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0) return 0;
  path[n] = 0;
  return below_root(path);
}

static int is_the_one(void) { return ++seen == armed; }
static void die(void) { _exit(137); }
static int fail(int error) { errno = error; return -1; }

#define REAL(name, type) __typeof__(type) real = (__typeof__(type))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *data, size_t n) {
  REAL("write", ssize_t (*)(int, const void *, size_t));
  if (!ours(fd)) return real(fd, data, n);
  if (follow_up) { follow_up = 0; return fail(ENOSPC); }
  if (!is_the_one()) return real(fd, data, n);
  ssize_t half = n / 2 ? real(fd, data, n / 2) : 0;
  if (kind == 1) die();
  if (half > 0) { follow_up = 1; return half; }
  return fail(ENOSPC);
}

static ssize_t any_pwrite(const char *name, int fd, const void *data, size_t n, off_t at) {
  ssize_t (*real)(int, const void *, size_t, off_t) = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
  if (!ours(fd) || !is_the_one()) return real(fd, data, n, at);
  if (n / 2) real(fd, data, n / 2, at);
  if (kind == 1) die();
  return fail(ENOSPC);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { return any_pwrite("pwrite", fd, data, n, at); }
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) { return any_pwrite("pwrite64", fd, data, n, at); }

static int any_sync(const char *name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  if (!ours(fd) || !is_the_one()) return real(fd);
  if (kind == 1) die();
  return fail(EIO);
}
int fsync(int fd) { return any_sync("fsync", fd); }
int fdatasync(int fd) { return any_sync("fdatasync", fd); }

static int any_truncate(const char *name, int fd, off_t n) {
  int (*real)(int, off_t) = (int (*)(int, off_t))dlsym(RTLD_NEXT, name);
  if (!ours(fd) || !is_the_one()) return real(fd, n);
  if (kind == 1) die();
  return fail(ENOSPC);
}
int ftruncate(int fd, off_t n) { return any_truncate("ftruncate", fd, n); }
int ftruncate64(int fd, off_t n) { return any_truncate("ftruncate64", fd, n); }

int rename(const char *from, const char *to) {
  REAL("rename", int (*)(const char *, const char *));
  if (!below_root(to) || !is_the_one()) return real(from, to);
  if (kind == 1) die();
  return fail(ENOSPC);
}

int unlink(const char *path) {
  REAL("unlink", int (*)(const char *));
  if (!below_root(path) || !is_the_one()) return real(path);
  if (kind == 1) die();
  return fail(ENOSPC);
}
