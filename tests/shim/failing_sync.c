/* Loaded before libc: while the file SYNC_FAILS_WHILE exists, no file below the folder SYNC_FAILS_BELOW whose name ends
 * in SYNC_FAILS_OF can be synced: the disk says EIO, as one does that has lost what it was given. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(int fd) {
  const char *below = getenv("SYNC_FAILS_BELOW"), *of = getenv("SYNC_FAILS_OF"), *flag = getenv("SYNC_FAILS_WHILE");
  char link[64], path[PATH_MAX];
  if (!below || !of || !flag || access(flag, F_OK)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0) return 0;
  path[n] = 0;
  if (strncmp(path, below, strlen(below))) return 0;
  size_t end = strlen(of);
  return (size_t)n >= end && !strcmp(path + n - end, of);
}

static int any_sync(const char *name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  if (fails(fd)) { errno = EIO; return -1; }
  return real(fd);
}
int fsync(int fd) { return any_sync("fsync", fd); }
int fdatasync(int fd) { return any_sync("fdatasync", fd); }
