/* Loaded before libc: counts every call that changes a file below a folder and makes the k-th one go wrong.
 *
 * A fault is armed from inside the process (fault_arm), or by FAULT_BELOW, FAULT_AT (which call) and FAULT_KIND; the
 * file FAULT_SEEN then says how many calls there were. Kinds: 1 the process dies in the middle of the call (half of a
 * write is done), 2 the call fails once: a write is cut short and the next one finds no space, a sync fails with EIO,
 * the others with ENOSPC. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long armed, own_count, *seen = &own_count;
static int kind, follow_up;
static char root[PATH_MAX];

void fault_arm(const char *below, long k, int what) {
  snprintf(root, sizeof root, "%s", below);
  armed = k; kind = what; *seen = 0; follow_up = 0;
}
long fault_seen(void) { return *seen; }

/* The count is in a file that all processes of a program share, so that one fault happens in one of them. */
__attribute__((constructor)) static void arm_by_environment(void) {
  const char *below = getenv("FAULT_BELOW"), *at = getenv("FAULT_AT"), *what = getenv("FAULT_KIND"), *to = getenv("FAULT_SEEN");
  if (!below || !at || !what || !to) return;
  int fd = open(to, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *shared = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (shared == MAP_FAILED) return;
  seen = shared;
  snprintf(root, sizeof root, "%s", below);
  armed = atol(at); kind = atoi(what);
}

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

static int is_the_one(void) { return __atomic_add_fetch(seen, 1, __ATOMIC_SEQ_CST) == armed; }
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

ssize_t writev(int fd, const struct iovec *parts, int n) {
  REAL("writev", ssize_t (*)(int, const struct iovec *, int));
  if (!ours(fd) || !is_the_one()) return real(fd, parts, n);
  if (kind == 1) { real(fd, parts, n / 2); die(); }
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

/* Whether a name, as it is given beside a folder's descriptor, is below. */
static int below_at(int folder, const char *path) {
  return path && path[0] != '/' && folder != AT_FDCWD ? ours(folder) : below_root(path);
}

/* A name that comes or goes: refused, or the process dies before it does. True where the call is to be made. */
static int goes_well(int is_ours, int error) {
  if (!is_ours || !is_the_one()) return 1;
  if (kind == 1) die();
  errno = error;
  return 0;
}

int rename(const char *from, const char *to) {
  REAL("rename", int (*)(const char *, const char *));
  return goes_well(below_root(to), ENOSPC) ? real(from, to) : -1;
}
int renameat(int old, const char *from, int new, const char *to) {
  REAL("renameat", int (*)(int, const char *, int, const char *));
  return goes_well(below_at(new, to), ENOSPC) ? real(old, from, new, to) : -1;
}
int renameat2(int old, const char *from, int new, const char *to, unsigned int flags) {
  REAL("renameat2", int (*)(int, const char *, int, const char *, unsigned int));
  return goes_well(below_at(new, to), ENOSPC) ? real(old, from, new, to, flags) : -1;
}
int unlink(const char *path) {
  REAL("unlink", int (*)(const char *));
  return goes_well(below_root(path), ENOSPC) ? real(path) : -1;
}
int unlinkat(int folder, const char *path, int flags) {
  REAL("unlinkat", int (*)(int, const char *, int));
  return goes_well(below_at(folder, path), ENOSPC) ? real(folder, path, flags) : -1;
}
int mkdir(const char *path, mode_t mode) {
  REAL("mkdir", int (*)(const char *, mode_t));
  return goes_well(below_root(path), ENOSPC) ? real(path, mode) : -1;
}
int mkdirat(int folder, const char *path, mode_t mode) {
  REAL("mkdirat", int (*)(int, const char *, mode_t));
  return goes_well(below_at(folder, path), ENOSPC) ? real(folder, path, mode) : -1;
}
int rmdir(const char *path) {
  REAL("rmdir", int (*)(const char *));
  return goes_well(below_root(path), EIO) ? real(path) : -1;
}

static int any_open(const char *name, const char *path, int flags, mode_t mode) {
  int (*real)(const char *, int, mode_t) = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, name);
  int makes = (flags & O_CREAT) && below_root(path) && access(path, F_OK);
  return goes_well(makes, ENOSPC) ? real(path, flags, mode) : -1;
}
#define MODE(flags, mode) \
  mode_t mode = 0; \
  if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) { MODE(flags, mode) return any_open("open", path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, mode) return any_open("open64", path, flags, mode); }

static int any_openat(const char *name, int folder, const char *path, int flags, mode_t mode) {
  int (*real)(int, const char *, int, mode_t) = (int (*)(int, const char *, int, mode_t))dlsym(RTLD_NEXT, name);
  int makes = (flags & O_CREAT) && below_at(folder, path) && faccessat(folder, path, F_OK, 0);
  return goes_well(makes, ENOSPC) ? real(folder, path, flags, mode) : -1;
}
int openat(int at, const char *path, int flags, ...) { MODE(flags, mode) return any_openat("openat", at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags, mode) return any_openat("openat64", at, path, flags, mode); }
